#!/bin/sh
# rank.sh <folder> <command>...: a rank that mpirun or a script has started. Its
# lines go to the pipe <folder>/r<rank>, since mpirun may lose the last ones, and
# how it ended after them. Ends as the command has ended.
folder=$1
shift
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$CANZONA_RANK}}
# mpirun signals this process and the rank.
trap : TERM INT USR1
ulimit -c 0
"$@" >"$folder/r$rank" 2>&1
status=$?
echo "ended: $status" >"$folder/r$rank"
case $status in
  134 | 137 | 139) kill "-$((status - 128))" $$ ;;
  *) exit "$status" ;;
esac
