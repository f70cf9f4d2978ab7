/*
 * statistics.h - what is said of a number that was measured several times.
 */
#ifndef CPA_STATISTICS_H
#define CPA_STATISTICS_H

/* All NaN where n = 0. */
struct cpa_statistics {
	int n;
	double min, q1, median, q3, max;
};

/*
 * values [n]  in, sorted on return
 * A quartile lies between two of the sorted values, by straight line: the one at (n-1)/4, (n-1)/2
 * and 3(n-1)/4, counted from 0 (definition 7 of Hyndman and Fan, The American Statistician 50,
 * 1996).
 */
struct cpa_statistics cpa_statistics_of(double *values, int n);
/* How far apart the repetitions lie: (q3 - q1) / median, as a share.  NaN where there is none. */
double cpa_statistics_spread(const struct cpa_statistics *statistics);

#endif
