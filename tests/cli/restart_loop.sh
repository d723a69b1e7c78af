# The loops of docs/resuming.md and docs/tcp.md: what they start again, how they
# end, and that a run that lost a rank then ends with the bits of one that did
# not. The third argument is mpirun, or nothing.
. "$(dirname "$0")/words.sh"
mpirun=$3
computes train --steps 0 --quiet

# loop_of <page>: its script.
loop_of() {
  sed -n '/^```sh$/,/^```$/{/^```/!p}' "$here/../../docs/$1"
}
loop_of resuming.md >mpi.sh
loop_of tcp.md >tcp.sh
checks=$((checks + 1))
[ "$(wc -l <mpi.sh)" = 5 ] || fail 'the loop of resuming.md is not of five lines'

# --- With a program that ends as the next line of the file `ends` says. Rank 1
# of the sockets has lost the other.
mkdir bin
PATH=$PWD/bin:$PATH
cat >bin/canzona <<'PROGRAM'
#!/bin/sh
[ "$CANZONA_RANK" != 1 ] || exit 4
echo "$*" >>calls
end=$(head -n 1 ends)
sed -i 1d ends
exit "$end"
PROGRAM
printf '#!/bin/sh\nshift 2\nexec "$@"\n' >bin/mpirun
printf '#!/bin/sh\n' >bin/sleep
chmod +x bin/*

# loops <status> <times> <end>...: runs each loop with a program that ends so.
loops() {
  expected=$1 times=$2
  shift 2
  for loop in mpi tcp; do
    last="$loop.sh, whose runs end with $*"
    printf '%s\n' "$@" >ends
    rm -f calls
    sh $loop.sh >out 2>err </dev/null
    status=$?
    exits "$expected"
    checks=$((checks + 1))
    [ "$(grep -c -e '--resume auto' calls)" = "$times" ] ||
      fail "started $(wc -l <calls) times, not $times"
  done
}
loops 0 1 0
for end in 4 134 137 139; do loops 0 2 $end 0; done
loops 4 4 4 137 4 4 0
for end in 1 2 3 5 6 130 143; do loops $end 1 $end 0; done

# --- With ranks of which one is killed.
rm bin/*
settings=$(small_model)
mv text.txt book.txt
settings=$(echo "$settings" | sed 's/--set data.path=text.txt//')
cat >bin/canzona <<PROGRAM
#!/bin/sh
exec "$program" "\$@" --steps 8 --quiet $(echo "$settings")
PROGRAM
chmod +x bin/canzona
[ -z "$mpirun" ] || ln -s "$(command -v "$mpirun")" bin/mpirun
# A port that no other test uses.
sed -i "s/29600/$((20000 + $$ % 10000))/" tcp.sh
for loop in mpi tcp; do
  [ $loop = tcp ] || [ -n "$mpirun" ] || continue
  sed 's/--save-every 100/--save-every 2/' $loop.sh >run.sh
  for fault in '' "rank=1,step=6,at=optimizer,kind=kill,once=once.$loop"; do
    last="$loop.sh with CANZONA_TEST_FAULT=$fault"
    rm -rf runs
    env CANZONA_TEST_FAULT="$fault" sh run.sh >out 2>err </dev/null
    status=$?
    exits 0
    checks=$((checks + 1))
    grep -m 1 '"digest"' runs/one/summary.json >"digest.${fault:+killed}" ||
      fail 'no digest'
  done
  checks=$((checks + 1))
  [ -e once.$loop ] || fail 'no rank was killed'
  holds runs/one/summary.json '"starts": 2'
  checks=$((checks + 1))
  cmp -s digest. digest.killed || fail 'another digest than without the kill'
done
finish
