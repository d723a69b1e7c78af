# Paths that the system refuses to look at: the message names path and reason,
# and does not take them for absent.
. "$(dirname "$0")/words.sh"
computes train --steps 0 --quiet

# --- Names that are too long, and a link to itself.
long=$(printf '%0300d' 0 | tr 0 x)
ln -s itself itself
for path in "$long" "$long/below"; do
  refuses 'File name too long' -- train --steps 1 --run "$path"
done
refuses 'File name too long' -- train --steps 1 --run new --resume "$long"
refuses 'File name too long' -- train --steps 1 --init "$long"
refuses "'itself'" 'symbolic links' -- train --steps 1 --run itself
refuses "'itself/below'" 'symbolic links' -- train --steps 1 --run itself/below
refuses "'itself" 'symbolic links' -- train --run new --resume itself
for verb in 'sample --prompt a --run' 'eval --run' report 'plan --mesh dp=1 --model' \
  'train --steps 1 --model' 'train --steps 1 --init'; do
  refuses "'itself'" 'symbolic links' -- $verb itself
done
not_there new

# --- A folder of somebody else. Root may enter all of them, so that the program
# then runs as nobody.
canzona train --run mine/run --steps 2 --save-every 2 --quiet \
  --set model.layers=1 --set model.hidden=16 --set model.ffn=16
exits 0
if [ "$(id -u)" = 0 ]; then
  chmod 755 "$scratch"
  mkdir others && chmod 777 others
  as_nobody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
else
  as_nobody() { "$@"; }
fi
chmod 700 mine
[ "$(id -u)" = 0 ] || chmod 000 mine
as_nobody "$program" --version >out 2>err || {
  echo 'nobody cannot start the program: folders of others are not tried'
  finish
}
# refuses_others <arguments>
refuses_others() {
  last="canzona $* (as nobody)"
  as_nobody "$program" "$@" >out 2>err </dev/null
  status=$?
  exits 2
  is_empty out
  says 'error: ' "mine" 'Permission denied'
  lacks err 'internal'
}
refuses_others train --steps 1 --run mine/new
refuses_others train --run mine/run --resume auto
refuses_others train --run mine/run --resume 2
refuses_others train --run others/run --resume mine/run
refuses_others sample --prompt a --run mine/run
refuses_others eval --run mine/run
refuses_others report mine/run
refuses_others train --steps 1 --init mine/run
refuses_others train --steps 1 --model mine/run/config.json
refuses_others plan --mesh dp=1 --model mine/run/config.json
chmod 700 mine
finish
