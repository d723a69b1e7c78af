#include "canzona/rules/soap/basis.h"

#include "canzona/rules/host_copy.h"
#include "canzona/rules/soap/basis_search.h"
#include "canzona/rules/typed_copy.h"

namespace canzona {
namespace {

Matrices like(Arena& arena, Matrices m, DType dtype) {
  if (m.data == nullptr || m.dtype == dtype) return m;
  return arena.matrices(dtype, m.rows, m.cols, m.count);
}

void ask_hook(Engine& engine, const BasisTask& task, const NewBases& found,
              std::span<Outcome> outcomes) {
  for_each_success(outcomes, [&](int64_t begin, int64_t size) {
    for (int64_t i = begin; i < begin + size; ++i) {
      HostCopy basis(engine, found.basis.at(i));
      HostCopy values(engine, found.some(i, 1).eigenvalues);
      if (!task.hook->basis(part_of(task.part, i), basis.view(),
                            values.view())) {
        outcomes[static_cast<size_t>(i)] = {false, "refused by a check"};
        continue;
      }
      basis.put_back();
      values.put_back();
    }
  });
}

}  // namespace

BasisTask BasisTask::some(int64_t begin, int64_t size) const {
  BasisTask some = *this;
  some.factor = factor.part(begin, size);
  some.basis = basis.part(begin, size);
  some.part = part_of(part, begin);
  return some;
}

NewBases NewBases::some(int64_t begin, int64_t size) const {
  NewBases some = *this;
  some.basis = basis.part(begin, size);
  if (eigenvalues.data != nullptr)
    some.eigenvalues = eigenvalues.part(begin, size);
  some.order = {order.data + begin * order.length, order.length, size};
  some.moved =
      moved.subspan(static_cast<size_t>(begin), static_cast<size_t>(size));
  return some;
}

bool finds_eigenvalues(const SoapOptions& soap) {
  return soap.sort != SoapOptions::Sort::kBefore || soap.keeps_eigenvalues();
}

void find_bases(Engine& engine, const SoapOptions& soap, const BasisTask& task,
                DType dtype, const NewBases& found,
                std::span<Outcome> outcomes) {
  Arena& arena = engine.arena();
  const Arena::Scope scope(arena);
  BasisTask typed = task;
  typed.factor = in_type(engine, task.factor, dtype);
  typed.basis = in_type(engine, task.basis, dtype);
  NewBases room = found;
  room.basis = like(arena, found.basis, dtype);
  room.eigenvalues = like(arena, found.eigenvalues, dtype);
  BasisSearch(engine, soap, typed, room, outcomes).run();
  if (dtype != found.basis.dtype)
    for_each_success(outcomes, [&](int64_t begin, int64_t size) {
      const NewBases from = room.some(begin, size);
      const NewBases to = found.some(begin, size);
      engine.convert(to.basis, from.basis);
      if (to.eigenvalues.data != nullptr)
        engine.convert(to.eigenvalues, from.eigenvalues);
    });
  if (task.hook != nullptr) ask_hook(engine, task, found, outcomes);
}

}  // namespace canzona
