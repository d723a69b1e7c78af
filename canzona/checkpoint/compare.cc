#include "canzona/checkpoint/compare.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "canzona/base/error.h"
#include "canzona/base/float16.h"
#include "canzona/base/text.h"
#include "canzona/shapes/records.h"

namespace canzona {
namespace {

constexpr int64_t kBatchBytes = 32 << 20;

struct ComparedPiece {
  const LogicalTensor* tensor;
  Box box;
  int64_t bytes;
};

// Halves a box recursively until each piece fits.
void add_pieces(const LogicalTensor& tensor, const Box& box,
                std::vector<ComparedPiece>& out) {
  const int64_t bytes = bytes_of(tensor, box);
  const auto longest = std::ranges::max_element(box.count);
  if (bytes <= kBatchBytes || longest == box.count.end() || *longest < 2) {
    out.push_back({&tensor, box, bytes});
    return;
  }
  const auto d = static_cast<size_t>(longest - box.count.begin());
  Box half = box;
  half.count[d] /= 2;
  add_pieces(tensor, half, out);
  half.first[d] += half.count[d];
  half.count[d] = box.count[d] - half.count[d];
  add_pieces(tensor, half, out);
}

template <class T>
T stored_at(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

template <class T>
double number_at(const std::byte* bytes) {
  return static_cast<double>(stored_at<T>(bytes));
}

double element_at(DType type, const std::byte* bytes) {
  switch (type) {
    case DType::kFp32:
      return number_at<float>(bytes);
    case DType::kBf16:
      return float_from_bf16(stored_at<uint16_t>(bytes));
    case DType::kFp16:
      return float_from_half(stored_at<uint16_t>(bytes));
    case DType::kFp64:
      return number_at<double>(bytes);
    case DType::kI64:
      return number_at<int64_t>(bytes);
    case DType::kI32:
      return number_at<int32_t>(bytes);
    case DType::kU64:
      return number_at<uint64_t>(bytes);
    case DType::kU32:
      return number_at<uint32_t>(bytes);
    case DType::kU8:
      return number_at<uint8_t>(bytes);
  }
  return NAN;
}

void compare_bytes(std::span<const std::byte> a, std::span<const std::byte> b,
                   DType type, TensorDifference& out) {
  if (std::memcmp(a.data(), b.data(), a.size()) == 0) return;
  const auto size = index(size_of(type));
  for (size_t at = 0; at < a.size(); at += size) {
    if (std::memcmp(a.data() + at, b.data() + at, size) == 0) continue;
    ++out.different;
    const double difference = std::abs(element_at(type, a.data() + at) -
                                       element_at(type, b.data() + at));
    // Once it is not finite, it stays so.
    if (!(difference <= out.largest)) out.largest = difference;
    if (std::isnan(difference)) out.largest = INFINITY;
  }
}

std::string kind_text(const LogicalTensor& tensor) {
  return cat(name_in_file(tensor.type), " ", shape_text(tensor.shape));
}

// Compares, in pieces, the tensors that have the same name, type and shape in
// both.
std::vector<ComparedPiece> pieces_of(const Manifest& first,
                                     const Manifest& second,
                                     CheckpointDifference& out) {
  std::vector<ComparedPiece> pieces;
  for (const SavedTensor& a : first.tensors) {
    const SavedTensor* b = second.find(a.tensor.name);
    if (b == nullptr) {
      out.only_first.push_back(a.tensor.name);
    } else if (a.tensor != b->tensor) {
      out.different.push_back(
          {a.tensor.name,
           cat(kind_text(a.tensor), " and ", kind_text(b->tensor)),
           elements_of(a.tensor.shape)});
    } else if (elements_of(a.tensor.shape) > 0) {
      add_pieces(a.tensor, whole_box(a.tensor.shape), pieces);
    } else {
      ++out.num_equal;
    }
  }
  for (const SavedTensor& b : second.tensors)
    if (first.find(b.tensor.name) == nullptr)
      out.only_second.push_back(b.tensor.name);
  return pieces;
}

std::vector<std::byte> load_batch(const CheckpointReader& reader,
                                  std::span<const ComparedPiece> batch,
                                  int threads) {
  int64_t bytes = 0;
  for (const ComparedPiece& piece : batch) bytes += piece.bytes;
  std::vector<std::byte> data(index(bytes));
  std::vector<BoxTarget> targets;
  std::span<std::byte> rest = data;
  for (const ComparedPiece& piece : batch) {
    targets.push_back(
        {piece.tensor->name, piece.box, rest.first(index(piece.bytes))});
    rest = rest.subspan(index(piece.bytes));
  }
  reader.load(targets, {.threads = threads});
  return data;
}

}  // namespace

CheckpointDifference compare_checkpoints(const CheckpointReader& first,
                                         const CheckpointReader& second,
                                         int threads) {
  CheckpointDifference out;
  const std::vector<ComparedPiece> pieces =
      pieces_of(first.manifest(), second.manifest(), out);
  std::map<std::string, TensorDifference> compared;
  for (size_t begin = 0; begin < pieces.size();) {
    size_t end = begin;
    for (int64_t bytes = 0; end < pieces.size() && bytes < kBatchBytes; ++end)
      bytes += pieces[end].bytes;
    const auto batch = std::span(pieces).subspan(begin, end - begin);
    const std::vector<std::byte> a = load_batch(first, batch, threads);
    const std::vector<std::byte> b = load_batch(second, batch, threads);
    size_t at = 0;
    for (const ComparedPiece& piece : batch) {
      TensorDifference& difference = compared[piece.tensor->name];
      difference.name = piece.tensor->name;
      difference.elements = elements_of(piece.tensor->shape);
      compare_bytes(std::span(a).subspan(at, index(piece.bytes)),
                    std::span(b).subspan(at, index(piece.bytes)),
                    piece.tensor->type, difference);
      at += index(piece.bytes);
    }
    begin = end;
  }
  for (auto& [name, difference] : compared) {
    if (difference.different == 0)
      ++out.num_equal;
    else
      out.different.push_back(std::move(difference));
  }
  std::ranges::sort(out.different, {}, &TensorDifference::name);
  return out;
}

}  // namespace canzona
