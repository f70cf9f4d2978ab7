# style.gp - what all plots of `cpattn report` share.  The command sets name (of the files) and kind.
if (kind eq 'svg') {
	set terminal svg size 860,420 dynamic font 'DejaVu Sans,14' name name background rgb 'white' noenhanced
} else {
	set terminal pngcairo size 1290,630 font 'DejaVu Sans,14' background rgb 'white' noenhanced
}
set output name.'.'.kind
data = name.'.dat'
set encoding utf8
set border 3 lc rgb '#57606a'
set tics nomirror
set grid ytics lc rgb '#d8dee4' lt 1
set key outside top center horizontal
# Shapes and fillings differ as well as colours, for readers who do not see those.
set style line 1 lc rgb '#0a58a6' pt 7 ps 0.8 lw 1.6 dt 1
set style line 2 lc rgb '#b35900' pt 8 ps 1.0 lw 1.6 dt 2
set style line 3 lc rgb '#2b7a3d' pt 5 ps 0.8 lw 1.6 dt 3
set style line 4 lc rgb '#7a3a93' pt 9 ps 1.0 lw 1.6 dt 4
set style line 5 lc rgb '#6b6f00' pt 13 ps 1.0 lw 1.6 dt 5
set style line 6 lc rgb '#a0134a' pt 4 ps 0.9 lw 1.6 dt 1
