# bytes.gp - block 0: groups; 1: bytes sent, MB; 2: peak memory, MB.
set logscale y
set ylabel 'MB'
set xtics rotate by -25
stats data index 0 using 1 nooutput
set xrange [-0.6:STATS_max + 0.6]
plot data index 0 using 1:(NaN):xtic(2) with points pt -1 notitle, \
	data index 1 using 1:2 with points ls 1 title 'sent by all ranks', \
	data index 2 using 1:2 with points ls 2 title 'peak memory of the fullest rank'
