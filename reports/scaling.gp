# scaling.gp - a block is a variant: its name, then ranks and how often the run fits into that of one rank.
stats data using 1:2 nooutput
blocks = STATS_blocks
set xlabel 'ranks'
set ylabel 'one rank / this'
set yrange [0:*]
set xtics 1
set offsets 0.3, 0.3, 0, 0
set arrow 1 from graph 0, first 1 to graph 1, first 1 nohead lc rgb '#57606a' lw 1 dt 2 back
plot for [i=0:blocks - 1] data index i using 1:2 with linespoints ls (i % 6 + 1) title columnheader(1)
