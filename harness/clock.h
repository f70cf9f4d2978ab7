/*
 * clock.h - how long something takes.
 */
#ifndef CPA_CLOCK_H
#define CPA_CLOCK_H

/* Seconds since some moment; never set back. */
double cpa_now(void);

#endif
