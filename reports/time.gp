# time.gp - a row is a bar: its name, then attend, merge, copy, exchange and wait in ms.
set style data histograms
set style histogram rowstacked
set boxwidth 0.75
set ylabel 'ms'
set yrange [0:*]
set xtics rotate by -35
set style fill pattern border lc rgb '#1b1f24'
plot data using 2:xtic(1) fs solid 0.9 ls 1 title 'attend', \
	'' using 3 fs pattern 1 ls 2 title 'merge', \
	'' using 4 fs pattern 4 ls 3 title 'copy', \
	'' using 5 fs pattern 2 ls 4 title 'exchange', \
	'' using 6 fs solid 0.15 ls 5 title 'wait'
