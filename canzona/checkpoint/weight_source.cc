#include "canzona/checkpoint/weight_source.h"

#include <algorithm>
#include <cstring>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"

namespace canzona::checkpoint {
namespace {

constexpr std::string_view kHeadName = "lm_head.weight";
constexpr std::string_view kEmbeddingName = "model.embed_tokens.weight";

std::vector<LogicalTensor> hf_wanted(const Model& model) {
  std::vector<LogicalTensor> wanted;
  for (const Tensor& tensor : model.tensors)
    for (HfTensor& one : hf_tensors(tensor))
      wanted.push_back(
          {std::move(one.name), DType::kFp32, std::move(one.shape)});
  return wanted;
}

bool is_tied_model(const Model& model) {
  return std::ranges::find(model.tensors, kHeadName, &Tensor::name) ==
         model.tensors.end();
}

// The head of a tied model is not loaded, so it must be equal to the embedding.
void require_equal_head(const HfFolder& folder, const HfEntry& head) {
  constexpr int64_t kPiece = 1 << 18;
  const HfEntry* embedding = folder.find(kEmbeddingName);
  if (embedding == nullptr) return;  // the caller refuses this
  bool equal = embedding->shape == head.shape;
  const int64_t count = elements_of(head.shape);
  std::vector<float> a, b;
  for (int64_t at = 0; equal && at < count; at += kPiece) {
    a.resize(index(std::min(kPiece, count - at)));
    b.resize(a.size());
    folder.read(head, at, a);
    folder.read(*embedding, at, b);
    equal = std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  }
  if (equal) return;
  throw CheckpointRefused(
      cat(quoted(folder.path(), 300), ": tie_word_embeddings is true, but ",
          kHeadName, " is not ", kEmbeddingName,
          "; set tie_word_embeddings to false or remove the head"));
}

// All types that can be read become fp32.
SavedTensors hf_saved(const HfFolder& folder, const Model& model) {
  SavedTensors saved{quoted(folder.path(), 300), "the folder", {}};
  for (const HfEntry& entry : folder.entries()) {
    if (entry.name.ends_with("rotary_emb.inv_freq")) continue;
    if (entry.name == kHeadName && is_tied_model(model)) {
      require_equal_head(folder, entry);
      continue;
    }
    folder.check_type(entry);
    saved.tensors.push_back({entry.name, DType::kFp32, entry.shape});
  }
  return saved;
}

class HfSource : public WeightSource {
 public:
  HfSource(HfFolder folder, const Model& model) : folder_(std::move(folder)) {
    match_tensors(hf_saved(folder_, model), hf_wanted(model),
                  Strictness::kExact);
  }

  const std::string& path() const override { return folder_.path(); }

  void read(const Tensor& tensor,
            const std::vector<TensorPiece>& pieces) const override {
    const std::vector<HfTensor> parts = hf_tensors(tensor);
    for (const TensorPiece& piece : pieces) read_piece(tensor, parts, piece);
  }

 private:
  // Rows of the whole tensor that are contiguous in one of its projections.
  struct Place {
    const HfTensor* part;
    int64_t row;   // of the part
    int64_t rows;  // up to the end of its run
  };

  static Place place_of(const std::vector<HfTensor>& parts, int64_t row,
                        const Tensor& tensor) {
    for (const HfTensor& part : parts) {
      const RowRuns& runs = part.rows;
      const int64_t offset = row - runs.first;
      if (offset < 0 || offset / runs.stride >= runs.count) continue;
      const int64_t within = offset % runs.stride;
      if (within < runs.run)
        return {&part, offset / runs.stride * runs.run + within,
                runs.run - within};
    }
    CANZONA_CHECK(false, "row ", row, " of ", tensor.name, " has no part");
    return {};
  }

  void read_piece(const Tensor& tensor, const std::vector<HfTensor>& parts,
                  const TensorPiece& piece) const {
    const int64_t cols = tensor.cols();
    const int64_t end = piece.first + std::ssize(piece.to);
    for (int64_t at = piece.first; at < end;) {
      const Place place = place_of(parts, at / cols, tensor);
      const int64_t stop = std::min(end, (at / cols + place.rows) * cols);
      const HfEntry* entry = folder_.find(place.part->name);
      CANZONA_CHECK(entry != nullptr, place.part->name);
      folder_.read(*entry, place.row * cols + at % cols,
                   piece.to.subspan(index(at - piece.first), index(stop - at)));
      at = stop;
    }
  }

  HfFolder folder_;
};

LogicalTensor saved_as(const Tensor& tensor) {
  return {cat("model/", tensor.name), DType::kFp32, tensor.shape};
}

class CheckpointSource : public WeightSource {
 public:
  CheckpointSource(CheckpointReader reader, const Model& model)
      : reader_(std::move(reader)) {
    std::vector<LogicalTensor> wanted;
    for (const Tensor& tensor : model.tensors)
      wanted.push_back(saved_as(tensor));
    SavedTensors saved{cat("the checkpoint ", quoted(reader_.path(), 300)),
                       "the checkpoint",
                       {}};
    for (const SavedTensor& tensor : reader_.manifest().tensors)
      if (tensor.tensor.name.starts_with("model/"))
        saved.tensors.push_back(tensor.tensor);
    match_tensors(saved, wanted, Strictness::kExact);
  }

  const std::string& path() const override { return reader_.path(); }

  // Reads everything in one call, so that a chunk of a file is read and hashed
  // once.
  void read(const Tensor& tensor,
            const std::vector<TensorPiece>& pieces) const override {
    std::vector<BoxTarget> targets;
    for (const TensorPiece& piece : pieces) add_boxes(tensor, piece, targets);
    reader_.load(targets);
  }

 private:
  // Splits a piece into the rest of a row, whole rows, and the beginning of a
  // row.
  static void add_boxes(const Tensor& tensor, const TensorPiece& piece,
                        std::vector<BoxTarget>& targets) {
    const int64_t cols = tensor.shape.size() < 2 ? 1 : tensor.cols();
    const int64_t end = piece.first + std::ssize(piece.to);
    for (int64_t at = piece.first; at < end;) {
      const int64_t row = at / cols;
      const int64_t col = at % cols;
      const bool whole = col == 0 && end - at >= cols;
      const int64_t rows = whole ? (end - at) / cols : 1;
      const int64_t width = whole ? cols : std::min(cols - col, end - at);
      Box box{{row}, {rows}};
      if (tensor.shape.size() == 2) {
        box.first.push_back(col);
        box.count.push_back(width);
      }
      const auto to =
          piece.to.subspan(index(at - piece.first), index(rows * width));
      targets.push_back(
          {cat("model/", tensor.name), box, std::as_writable_bytes(to)});
      at += rows * width;
    }
  }

  CheckpointReader reader_;
};

}  // namespace

std::unique_ptr<WeightSource> hf_source(HfFolder folder, const Model& model) {
  return std::make_unique<HfSource>(std::move(folder), model);
}

std::unique_ptr<WeightSource> checkpoint_source(CheckpointReader reader,
                                                const Model& model) {
  return std::make_unique<CheckpointSource>(std::move(reader), model);
}

}  // namespace canzona::checkpoint
