#!/bin/sh
# check_names.sh accepts names that differ and refuses one that comes twice.
set -u
check=$(cd "$(dirname "$0")" && pwd)/check_names.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
status=0

# expect <0|1> <header> <line of it> <other header> <line of it>
expect() {
  rm -rf "$folder/tree"
  for header in "$2" "$4"; do
    mkdir -p "$folder/tree/canzona/$(dirname "$header")"
  done
  printf 'namespace canzona {\n%s\n' "$3" >"$folder/tree/canzona/$2"
  printf 'namespace canzona {\n%s\n' "$5" >"$folder/tree/canzona/$4"
  sh "$check" "$folder/tree" >"$folder/output"
  got=$?
  if [ "$got" -ne "$1" ]; then
    echo "'$3' and '$5': expected exit $1, got $got"
    cat "$folder/output"
    status=1
  fi
}

expect 0 a/x.h 'struct Round {' b/y.h 'struct Rounds {'
expect 0 a/x.h 'struct Round {' b/y.h 'struct Round;'
expect 0 a/x.h 'struct Round {' b/test_y.h 'struct Round {'
expect 0 a/x.h 'struct Round {' b/y.h '  struct Round {'
expect 0 a/x.h 'struct Round {' b/y.h 'namespace canzona::b {
struct Round {'
expect 0 a/x.h 'struct Round {' b/y.h 'namespace {
struct Round {'
expect 0 a/x.h 'struct Round { int n = 0; };' b/y.h 'enum class Round;'
expect 0 a/x.h 'struct Round {' b/y.h 'using shapes::Round;'
expect 0 a/x.h 'struct Round {' b/y.h 'enum class Round : int;'

expect 1 a/x.h 'struct Round {' b/y.h 'class Round {'
expect 1 a/x.h 'class Round {' b/y.h 'class Round final : public Shape {'
expect 1 a/x.h 'enum class Round {' b/y.h 'struct Round {'
expect 1 a/x.h 'struct Round {' b/y.h 'struct Round { int n = 0; };'
expect 1 a/x.h 'struct Round { int n = 0; };' b/y.h 'struct Round {};'
expect 1 a/x.h 'struct Round {' b/y.h 'enum class Round { kFirst, kLast };'
expect 1 a/x.h 'enum Round { kFirst };' b/y.h 'enum class Round : int { kLast };'
expect 1 a/x.h 'struct Round {' b/y.h 'struct Round
    : Shape {'
expect 1 a/x.h 'struct Round {' b/y.h 'using Round = std::pair<int, int>;'
expect 1 a/x.h 'using Round = int;' b/y.h 'using Round =
    std::pair<int, int>;'

# Sources count as well.
expect 1 a/x.h 'struct Round {' b/y.cc 'class Round {'
expect 1 a/x.cc 'struct Round {' b/y.cc 'struct Round {'
expect 0 a/x.cc 'struct Round {' b/y.cc 'namespace {
struct Round {'
expect 0 a/x.cc 'struct A::Round {' b/y.cc 'struct B::Round {'
expect 0 a/x.cc 'struct Round {' b/y_test.cc 'struct Round {'
expect 0 a/x.cc 'using Round = int;' b/y.cc 'using Round = int;'

expect 1 a/x.cc 'int sum(int a) {' b/y.cc 'int sum(int b) { return b; }'
expect 1 a/x.cc 'const A<B, C>& sum(const A<B, C>& a, int* b) {' \
  b/y.cu 'A<B, C> sum(const A<B, C>& c,
            int* d) {'
expect 1 a/x.cc 'std::vector<int>
sum() {' b/y.cc 'int sum() {'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc 'int sum(double a) {'
expect 0 a/x.cc 'int sum(A<int, int> a) {' b/y.cc 'int sum(A<int> a, int b) {'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc 'int sum(int a);'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc 'static int sum(int a) {'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc 'template <class T>
int sum(int a) {'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc 'namespace {
int sum(int a) {'
expect 0 a/x.cc 'int sum(int a) {' b/y.cc '}  // namespace canzona
namespace canzona::b {
int sum(int a) {'
expect 0 a/x.cc 'int A::sum(int a) {' b/y.cc 'int A::sum(int a) {'
expect 0 a/x.cc 'int sum(int a) {' b/no_y.cc 'int sum(int a) {'

exit $status
