#include <exception>
#include <limits>
#include <optional>
#include <utility>

#include "canzona/base/error.h"
#include "canzona/base/json_reader.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/manifest.h"
#include "canzona/shapes/tensor.h"

namespace canzona::checkpoint {
namespace {

constexpr size_t kMaxSavedFiles = kMaxSavedRanks + 100;
constexpr int64_t kMaxSavedBoxes = 16'000'000;
constexpr int64_t kMaxSavedValues = 16 * kMaxSavedBoxes;
// Those of a tensor with a box for each of kMaxSavedRanks, ten times over.
constexpr int64_t kMaxHeldValues = 100 * kMaxSavedRanks;
constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::min();

using KnownKeys = std::initializer_list<const char*>;

// Files and tensors are consumed as they are parsed. Faults in them, and keys
// that are not known, are reported once the versions are: a newer format may
// have additional members with any meaning.
class ManifestReader {
 public:
  ManifestReader(std::string_view text, const std::string& file)
      : text_(text), file_(printable(file)) {}

  Manifest read() {
    const auto streamed = [this](void (ManifestReader::*add)(const Json&)) {
      return [this, add](std::string&& /*key*/, Json&& entry) {
        if (fault_ != nullptr) return;
        try {
          (this->*add)(entry);
        } catch (const UsageError&) {
          fault_ = std::current_exception();
        }
      };
    };
    const Json root =
        parse_json(text_,
                   {.what = file_,
                    .max_bytes = kMaxManifestBytes,
                    .max_values = kMaxSavedValues,
                    .max_held = kMaxHeldValues},
                   {{{"files"}, streamed(&ManifestReader::add_file)},
                    {{"tensors"}, streamed(&ManifestReader::add_tensor)}});
    read_versions(root);
    if (fault_ != nullptr) std::rethrow_exception(fault_);
    check_keys(
        root,
        {"format", "format_version", "min_reader_version", "step", "world",
         "plan_digest", "chunk_bytes", "files", "tensors", "sha256"},
        file_);
    if (unknown_ != nullptr && manifest_.version <= kCheckpointVersion)
      std::rethrow_exception(unknown_);
    manifest_.step = integer(root, "step", file_);
    manifest_.world = integer(root, "world", file_);
    manifest_.plan_digest = get_string(root, "plan_digest", file_);
    manifest_.chunk_bytes = integer(root, "chunk_bytes", file_);
    get_string(root, "sha256", file_);  // checked before
    for (const char* list : {"files", "tensors"}) list_in(root, list, file_);
    return std::move(manifest_);
  }

 private:
  static int64_t integer(const Json& object, const char* key,
                         const std::string& where) {
    return get_integer(object, key, kAnyInteger,
                       std::numeric_limits<int64_t>::max(), where);
  }

  void require_fewer(int64_t count, int64_t limit, const char* what) const {
    if (count >= limit)
      throw UsageError(cat(file_, ": more than ", limit, " ", what));
  }

  // Remembers the first unknown key.
  void check_keys(const Json& object, KnownKeys known,
                  const std::string& where) {
    try {
      require_known_keys(object, known, where);
    } catch (const UsageError&) {
      if (!object.is_object()) throw;
      if (unknown_ == nullptr) unknown_ = std::current_exception();
    }
  }

  void read_versions(const Json& root) {
    if (const std::string format = get_string(root, "format", file_);
        format != kManifestFormat)
      throw UsageError(cat(file_, ": format ", quoted(format), ", expected ",
                           quoted(kManifestFormat)));
    const int64_t version = integer(root, "format_version", file_);
    const int64_t reader = integer(root, "min_reader_version", file_);
    if (reader > kCheckpointVersion)
      throw UsageError(cat(file_, ": format version ", version,
                           " needs a reader of version ", reader,
                           " or newer, this one has version ",
                           kCheckpointVersion, "; use a newer canzona"));
    if (version < 1 || reader < 1 || reader > version)
      throw UsageError(cat(file_, ": format version ", version,
                           " for readers from ", reader));
    manifest_.version = version;
    manifest_.min_reader_version = reader;
  }

  void add_file(const Json& entry) {
    require_fewer(std::ssize(manifest_.files), kMaxSavedFiles, "files");
    const std::string list = cat(file_, ": files");
    FileRecord file;
    file.name = get_string(entry, "name", list);
    const std::string where = cat(file_, ": file ", quoted(file.name));
    check_keys(entry, {"name", "bytes", "sha256", "chunks"}, where);
    file.bytes = integer(entry, "bytes", where);
    file.sha256 = get_string(entry, "sha256", where);
    for (const Json& chunk : list_in(entry, "chunks", where)) {
      if (!chunk.is_string())
        throw UsageError(cat(where, ": a checksum is not a text"));
      file.chunks.push_back(chunk.get<std::string>());
    }
    manifest_.files.push_back(std::move(file));
  }

  void add_tensor(const Json& entry) {
    require_fewer(std::ssize(manifest_.tensors), kMaxTensors, "tensors");
    const std::string list = cat(file_, ": tensors");
    SavedTensor saved;
    LogicalTensor& tensor = saved.tensor;
    tensor.name = get_string(entry, "name", list);
    const std::string where = cat(file_, ": tensor ", quoted(tensor.name));
    check_keys(entry, {"name", "dtype", "shape", "boxes"}, where);
    tensor.shape = get_integers(entry, "shape", kMaxDims, where);
    const std::string dtype = get_string(entry, "dtype", where);
    const std::optional<DType> type = dtype_in_file(dtype);
    if (!type) throw UsageError(cat(where, ": unknown dtype ", quoted(dtype)));
    tensor.type = *type;
    for (const Json& box : list_in(entry, "boxes", where)) {
      require_fewer(num_boxes_++, kMaxSavedBoxes, "boxes");
      check_keys(box, {"file", "offset", "first", "count"}, where);
      saved.boxes.push_back({integer(box, "file", where),
                             integer(box, "offset", where),
                             {get_integers(box, "first", kMaxDims, where),
                              get_integers(box, "count", kMaxDims, where)}});
    }
    manifest_.tensors.push_back(std::move(saved));
  }

  static const Json& list_in(const Json& object, const char* key,
                             const std::string& where) {
    const Json& list = get_member(object, key, where);
    if (!list.is_array())
      throw UsageError(cat(where, ": '", key, "' is not a list"));
    return list;
  }

  std::string_view text_;
  std::string file_;
  Manifest manifest_;
  int64_t num_boxes_ = 0;
  std::exception_ptr fault_, unknown_;  // the first ones
};

}  // namespace

Manifest read_manifest_json(std::string_view text, const std::string& file) {
  return ManifestReader(text, file).read();
}

}  // namespace canzona::checkpoint
