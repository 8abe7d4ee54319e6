#!/bin/sh
# check-model.sh DIRECTORY EXPECTED MODEL [-DOPTION...]
#
# Explores all states of a model with spin, in DIRECTORY. EXPECTED is "safe", or
# the violation that a wrong protocol must lead to: "assertion" or "deadlock". A
# search that was cut short is a failure, whatever it found until then.
set -eu
directory=$1
expected=$2
model=$3
shift 3

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"
spin -a "$@" "$model" >spin.log 2>&1 || { cat spin.log; exit 1; }
cc -O2 -w -DSAFETY -DNOFAIR -DCOLLAPSE -DMEMLIM=2000 -o pan pan.c
./pan -m1000000 >pan.log 2>&1 || true
cat pan.log

if grep -Eq "max search depth too small|out of memory|hash-table full" pan.log; then
  echo "$model $*: the search was not exhaustive"
  exit 1
fi
case $expected in
safe) grep -q "errors: 0" pan.log ;;
assertion) grep -q "assertion violated" pan.log ;;
deadlock) grep -q "invalid end state" pan.log ;;
*) echo "unknown expectation $expected"; exit 1 ;;
esac
