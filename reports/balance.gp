# balance.gp - block 0: groups; from 1 on: each rank's work over the mean.
set ylabel 'work / mean'
set yrange [0:*]
set xtics rotate by -25
stats data index 0 using 1 nooutput
set xrange [-0.6:STATS_max + 0.6]
set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lc rgb '#57606a' lw 1 dt 2 back
set key off
stats data nooutput
plot data index 0 using 1:(1):xtic(2) with points pt -1 notitle, \
	data index 1:STATS_blocks - 1 using 1:2 with points ls 1 notitle
