#include "canzona/checkpoint/manifest.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/shapes/tensor.h"

namespace canzona {
namespace {

constexpr int64_t kMaxSavedFiles = kMaxSavedRanks + 100;
constexpr int64_t kMaxSavedBoxes = 16'000'000;

// Members, by the object that has them.
enum class Member {
  kFormat,
  kVersion,
  kMinReader,
  kStep,
  kWorld,
  kPlan,
  kChunkBytes,
  kFiles,
  kTensors,
  kSha256,
  kFileName,
  kFileBytes,
  kFileSha256,
  kFileChunks,
  kTensorName,
  kTensorType,
  kTensorShape,
  kTensorBoxes,
  kBoxFile,
  kBoxOffset,
  kBoxFirst,
  kBoxCount,
  kUnknown,
};

enum class Object { kRoot, kFile, kTensor, kBox };

struct KnownMember {
  Object object;
  const char* key;
  Member member;
};

constexpr std::array<KnownMember, 22> kMembers = {{
    {Object::kRoot, "format", Member::kFormat},
    {Object::kRoot, "format_version", Member::kVersion},
    {Object::kRoot, "min_reader_version", Member::kMinReader},
    {Object::kRoot, "step", Member::kStep},
    {Object::kRoot, "world", Member::kWorld},
    {Object::kRoot, "plan_digest", Member::kPlan},
    {Object::kRoot, "chunk_bytes", Member::kChunkBytes},
    {Object::kRoot, "files", Member::kFiles},
    {Object::kRoot, "tensors", Member::kTensors},
    {Object::kRoot, "sha256", Member::kSha256},
    {Object::kFile, "name", Member::kFileName},
    {Object::kFile, "bytes", Member::kFileBytes},
    {Object::kFile, "sha256", Member::kFileSha256},
    {Object::kFile, "chunks", Member::kFileChunks},
    {Object::kTensor, "name", Member::kTensorName},
    {Object::kTensor, "dtype", Member::kTensorType},
    {Object::kTensor, "shape", Member::kTensorShape},
    {Object::kTensor, "boxes", Member::kTensorBoxes},
    {Object::kBox, "file", Member::kBoxFile},
    {Object::kBox, "offset", Member::kBoxOffset},
    {Object::kBox, "first", Member::kBoxFirst},
    {Object::kBox, "count", Member::kBoxCount},
}};

// Depth 1 is the manifest, 2 a list, 3 a file or tensor, 4 a list of it, 5 a
// box, 6 a list of it.
class ManifestReader : public JsonEvents {
 public:
  explicit ManifestReader(const std::string& file) : JsonEvents(file) {}

  Manifest take() {
    if (!complete_) refuse("no object");
    return std::move(manifest_);
  }

 private:
  struct Level {
    Object object;
    uint32_t seen = 0;  // bits by Member
    Member member = Member::kUnknown;
  };

  void on_open(char bracket) override {
    if (skipped_) {
      ++*skipped_;
      return;
    }
    if (bracket == '[') return open_list();
    if (levels_.empty()) {
      if (depth() != 1) refuse("expected an object");
      levels_.push_back({Object::kRoot});
    } else if (depth() == 3 && in(Member::kFiles)) {
      require_fewer(manifest_.files.size(), kMaxSavedFiles, "files");
      manifest_.files.emplace_back();
      levels_.push_back({Object::kFile});
    } else if (depth() == 3 && in(Member::kTensors)) {
      require_fewer(manifest_.tensors.size(), kMaxTensors, "tensors");
      manifest_.tensors.emplace_back();
      levels_.push_back({Object::kTensor});
    } else if (depth() == 5 && in(Member::kTensorBoxes)) {
      require_fewer(static_cast<size_t>(num_boxes_++), kMaxSavedBoxes, "boxes");
      manifest_.tensors.back().boxes.emplace_back();
      levels_.push_back({Object::kBox});
    } else {
      skip_or_refuse("'{'");
    }
  }

  void open_list() {
    const bool list_of_root =
        depth() == 2 && (in(Member::kFiles) || in(Member::kTensors));
    const bool list_of_entry =
        depth() == 4 && (in(Member::kFileChunks) || in(Member::kTensorShape) ||
                         in(Member::kTensorBoxes));
    const bool list_of_box =
        depth() == 6 && (in(Member::kBoxFirst) || in(Member::kBoxCount));
    if (list_of_root || list_of_entry || list_of_box) return;
    skip_or_refuse("'['");
  }

  void on_close() override {
    if (skipped_) {
      if (--*skipped_ == 0) skipped_.reset();
      return;
    }
    // Lists are at even depths.
    if (depth() % 2 == 0) return;
    require_all(levels_.back());
    levels_.pop_back();
    complete_ = levels_.empty();
  }

  void on_key(std::string& key) override {
    if (skipped_) return;
    Level& level = levels_.back();
    const auto* known = std::ranges::find_if(kMembers, [&](const auto& m) {
      return m.object == level.object && key == m.key;
    });
    level.member = known == kMembers.end() ? Member::kUnknown : known->member;
    require_versions_first(level);
    if (known == kMembers.end()) {
      if (manifest_.version <= kCheckpointVersion)
        refuse(cat("unknown key ", quoted(key)));
      return;
    }
    const uint32_t bit = 1U << static_cast<int>(known->member);
    if ((level.seen & bit) != 0)
      refuse(cat("key ", quoted(key), " comes twice"));
    level.seen |= bit;
  }

  void on_string(std::string& text) override {
    if (skipped_) return;
    const bool in_list = depth() % 2 == 0;
    if (in_list && in(Member::kFileChunks)) {
      manifest_.files.back().chunks.push_back(std::move(text));
      return;
    }
    if (in_list) return skip_or_refuse("string");
    switch (member()) {
      case Member::kFormat:
        if (text != kManifestFormat)
          refuse(cat("format ", quoted(text), ", expected ",
                     quoted(kManifestFormat)));
        return;
      case Member::kPlan:
        manifest_.plan_digest = std::move(text);
        return;
      case Member::kSha256:  // the manifest's own, checked before
        return;
      case Member::kFileName:
        manifest_.files.back().name = std::move(text);
        return;
      case Member::kFileSha256:
        manifest_.files.back().sha256 = std::move(text);
        return;
      case Member::kTensorName:
        manifest_.tensors.back().tensor.name = std::move(text);
        return;
      case Member::kTensorType:
        set_type(text);
        return;
      default:
        skip_or_refuse("string");
    }
  }

  void on_integer(int64_t number) override {
    if (skipped_) return;
    if (depth() % 2 == 0) return add_to_list(number);
    switch (member()) {
      case Member::kVersion:
        manifest_.version = number;
        return;
      case Member::kMinReader:
        manifest_.min_reader_version = number;
        return;
      case Member::kStep:
        manifest_.step = number;
        return;
      case Member::kWorld:
        manifest_.world = number;
        return;
      case Member::kChunkBytes:
        manifest_.chunk_bytes = number;
        return;
      case Member::kFileBytes:
        manifest_.files.back().bytes = number;
        return;
      case Member::kBoxFile:
        box().file = number;
        return;
      case Member::kBoxOffset:
        box().offset = number;
        return;
      default:
        skip_or_refuse("number");
    }
  }

  void on_other(std::string_view kind) override {
    if (!skipped_) skip_or_refuse(kind);
  }

  void add_to_list(int64_t number) {
    std::vector<int64_t>* list = nullptr;
    if (in(Member::kTensorShape))
      list = &manifest_.tensors.back().tensor.shape;
    else if (in(Member::kBoxFirst))
      list = &box().box.first;
    else if (in(Member::kBoxCount))
      list = &box().box.count;
    else
      return skip_or_refuse("number");
    require_fewer(list->size(), kMaxDims, "dimensions");
    list->push_back(number);
  }

  void set_type(const std::string& text) {
    SavedTensor& saved = manifest_.tensors.back();
    const std::optional<DType> type = dtype_in_file(text);
    if (!type)
      refuse(cat("tensor ", quoted(saved.tensor.name), ": unknown dtype ",
                 quoted(text)));
    saved.tensor.type = *type;
  }

  // A newer format may have additional members with any meaning.
  void require_versions_first(const Level& level) {
    if (level.object != Object::kRoot) return;
    const auto has = [&](Member m) {
      return (level.seen >> static_cast<int>(m) & 1) != 0;
    };
    const bool is_start = level.member == Member::kFormat ||
                          level.member == Member::kVersion ||
                          level.member == Member::kMinReader;
    if (is_start) return;
    if (!has(Member::kFormat) || !has(Member::kVersion) ||
        !has(Member::kMinReader))
      refuse(
          "it does not begin with format, format_version and "
          "min_reader_version");
    if (manifest_.min_reader_version > kCheckpointVersion)
      refuse(cat("format version ", manifest_.version,
                 " needs a reader of version ", manifest_.min_reader_version,
                 " or newer, this one has version ", kCheckpointVersion,
                 "; use a newer canzona"));
    if (manifest_.version < 1 || manifest_.min_reader_version < 1 ||
        manifest_.min_reader_version > manifest_.version)
      refuse(cat("format version ", manifest_.version, " for readers from ",
                 manifest_.min_reader_version));
  }

  void require_all(const Level& level) {
    for (const KnownMember& known : kMembers)
      if (known.object == level.object &&
          (level.seen >> static_cast<int>(known.member) & 1) == 0)
        refuse(cat("key '", known.key, "' is missing", where()));
  }

  std::string where() const {
    if (levels_.back().object == Object::kRoot) return "";
    if (levels_.back().object == Object::kFile)
      return cat(" of file ", quoted(manifest_.files.back().name));
    return cat(" of tensor ", quoted(manifest_.tensors.back().tensor.name));
  }

  void require_fewer(size_t count, int64_t limit, const char* what) {
    if (static_cast<int64_t>(count) >= limit)
      refuse(cat("more than ", limit, " ", what));
  }

  // Skips a value of an unknown member of a newer format; otherwise it is
  // wrong.
  void skip_or_refuse(std::string_view kind) {
    if (levels_.empty() || member() != Member::kUnknown ||
        manifest_.version <= kCheckpointVersion)
      refuse(cat("unexpected ", kind));
    if (kind == "'{'" || kind == "'['") skipped_ = 1;
  }

  Member member() const {
    return levels_.empty() ? Member::kUnknown : levels_.back().member;
  }
  bool in(Member m) const { return member() == m; }
  SavedBox& box() { return manifest_.tensors.back().boxes.back(); }

  Manifest manifest_;
  std::vector<Level> levels_;   // from the root to the current object
  std::optional<int> skipped_;  // containers of an unknown member
  int64_t num_boxes_ = 0;
  bool complete_ = false;
};

}  // namespace

Manifest read_manifest_json(std::string_view text, const std::string& file) {
  ManifestReader reader(file);
  reader.read(text);
  return reader.take();
}

}  // namespace canzona
