/*
 * random.c - splitmix64 (Steele, Lea, Flood 2014): one word of state, every seed is good.
 */
#include "sim/sim.h"

uint64_t cpa_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}
