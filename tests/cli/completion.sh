# Completion knows every verb and option that --help shows, and bash's works;
# every verb that prints numbers has --json.
. "$(dirname "$0")/words.sh"

for shell in bash zsh fish; do
  canzona completion $shell
  exits 0
  is_empty err
  cp out completion.$shell
done
refuses "'zhs'" "'zsh'" -- completion zhs

# These print the verbs below a path, and the options of a path, as the help
# pages list them.
verbs_below() {
  # shellcheck disable=SC2086
  "$program" $1 --help 2>/dev/null </dev/null |
    sed -n '/^Verbs:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'
}
options_of() {
  # shellcheck disable=SC2086
  "$program" $1 --help 2>/dev/null </dev/null |
    sed -n 's/^ \{2,6\}\(-[a-z], \)\{0,1\}\(--[a-z0-9-]*\).*/\2/p'
}
paths_below() {
  for verb in $(verbs_below "$1"); do
    echo "${1:+$1 }$verb"
    paths_below "${1:+$1 }$verb"
  done
}
paths_below '' >paths
checks=$((checks + 1))
last='canzona --help'
[ "$(wc -l <paths)" -ge 15 ] || fail 'help names too few verbs'

# A verb that has subverbs prints nothing itself; in a build that only plans,
# verbs that compute have no options.
while IFS= read -r path; do
  case $path in completion | config | ckpt | bench) continue ;; esac
  # shellcheck disable=SC2086
  canzona $path --help
  grep -q 'not in this build' out && continue
  checks=$((checks + 1))
  grep -q '^ *--json' out || fail 'there is no --json'
done <paths

# Prints what bash would offer after these words, of which the last is
# incomplete.
offered() {
  bash -c '. ./completion.bash
    COMP_WORDS=(canzona "$@")
    COMP_CWORD=$#
    _canzona
    printf "%s\n" "${COMPREPLY[@]}"' bash "$@" 2>bash.err
}
offers() {
  word=$1
  shift
  last="complete: canzona $*"
  checks=$((checks + 1))
  offered "$@" | grep -qxF -e "$word" || fail "bash does not offer $word"
}
offers_not() {
  word=$1
  shift
  last="complete: canzona $*"
  checks=$((checks + 1))
  ! offered "$@" | grep -qxF -e "$word" || fail "bash offers $word"
}

if command -v bash >/dev/null; then
  bash -n completion.bash || fail 'bash does not understand the script'
  # Every verb below its path, every option of its help page.
  while IFS= read -r path; do
    above=${path% *}
    [ "$above" != "$path" ] || above=
    # shellcheck disable=SC2086
    offers "${path##* }" $above ''
    # shellcheck disable=SC2086
    offered $path -- >offered.list
    last="complete: canzona $path --"
    for option in $(options_of "$path"); do
      checks=$((checks + 1))
      grep -qxF -e "$option" offered.list || fail "bash does not offer $option"
    done
  done <paths
  checks=$((checks + 1))
  [ ! -s bash.err ] || fail "bash says: $(head -3 bash.err)"

  # Values: words of a few, presets with files, files, folders.
  mkdir -p folder
  : >folder/inside
  : >'a file.json'
  offers muon plan --rule ''
  offers muon plan --rule =
  offers soap bench step --rule = so
  offers balanced compare --strategies ''
  offers qwen3-8b plan --model ''
  offers 'a file.json' plan --model ''
  offers 'a file.json' explain ''
  offers qwen3-8b models ''
  offers folder plan --model fol
  offers never models --color ''
  offers fish completion ''
  offers collectives bench ''
  offers step bench ''
  offers soap rules ''
  offers_not 'a file.json' plan --rule ''
  offers_not --rule plan --rule ''
  offers_not muon plan --mesh ''
  # Completion offers exactly the words that the verb accepts.
  offers all compare --zero ''
  offers_not auto compare --zero ''
  offers auto plan --zero ''
  offers_not all plan --zero ''
  offers_not auto simulate --zero ''
  offers none plan --activations ''
  offers bf16 plan --gradients ''
  offers any plan --strategy ''
  offers_not any simulate --strategy ''
  offers auto plan --prefetch ''
  offers folder report ''
  offers_not 'a file.json' report ''
  canzona train --help
  if ! grep -q 'not in this build' out; then
    offers small train --preset ''
    offers balanced train --strategy ''
    offers 'a file.json' train --data ''
    offers qwen3-0.6b train --model ''
    offers background bench step --overlap ''
    offers all bench step --overlap ''
    offers zero3 bench step --zero ''
    offers fp16 calibrate --precision ''
    offers cuda calibrate --device ''
    offers cuda train --device ''
    offers auto train --zero ''
    offers auto train --prefetch ''
    offers folder ckpt ls ''
    # Planning and training take the same words, but for --strategy any.
    for option in --strategy --teams --message --replica-sum --overlap \
      --collectives; do
      offered plan $option '' | grep -vx any >of_plan.list
      offered train $option '' >of_train.list
      checks=$((checks + 1))
      last="complete: canzona plan and train $option"
      cmp -s of_plan.list of_train.list || fail 'they are offered other words'
    done
  fi
else
  echo 'skipped: there is no bash here'
fi

# The other two know the same words.
while IFS= read -r path; do
  last="completion of $path"
  for word in ${path##* } $(options_of "$path"); do
    checks=$((checks + 2))
    name=${word#--}
    grep -qF -e "$word" completion.zsh || fail "zsh lacks $word"
    grep -qE -e "-l $name( |\$)|-a $name( |\$)" completion.fish ||
      fail "fish lacks $word"
  done
done <paths
for shell in zsh fish; do
  if command -v $shell >/dev/null; then
    checks=$((checks + 1))
    last="$shell -n"
    $shell -n completion.$shell || fail "$shell does not understand the script"
  else
    echo "skipped: no $shell here to check its syntax"
  fi
done

finish
