#include "canzona/rules/runs.h"

#include "canzona/base/check.h"

namespace canzona {

HostCopy::HostCopy(Engine& engine, Matrices one) : engine_(engine), one_(one) {
  if (one.data == nullptr) return;
  CANZONA_CHECK(one.count == 1 && one.contiguous(), one.count, " matrices of ",
                one.rows, "x", one.cols, ", ", one.row_stride, " apart");
  bytes_.resize(static_cast<size_t>(one.elements() * size_of(one.dtype)));
  engine_.download(bytes_.data(), one.data, std::ssize(bytes_));
}

Matrices HostCopy::view() {
  Matrices here = one_;
  if (one_.data != nullptr) here.data = bytes_.data();
  return here;
}

void HostCopy::put_back() const {
  if (one_.data == nullptr) return;
  engine_.upload(one_.data, bytes_.data(), std::ssize(bytes_));
}

}  // namespace canzona
