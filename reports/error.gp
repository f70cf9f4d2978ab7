# error.gp - block 0: groups; 1: o; 2: lse.  The line at 1 is the bound.
set logscale y
set format y '%.0e'
set ylabel 'error / bound'
set xtics rotate by -25
stats data index 0 using 1 nooutput
set xrange [-0.6:STATS_max + 0.6]
set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lc rgb '#a0134a' lw 2 dt 2 front
set label 1 'bound' at graph 1.005, first 1 tc rgb '#a0134a'
set rmargin 8
set yrange [*:2<*]
plot data index 0 using 1:(1):xtic(2) with points pt -1 notitle, \
	data index 1 using 1:2 with points ls 1 title 'o', \
	data index 2 using 1:2 with points ls 2 title 'lse'
