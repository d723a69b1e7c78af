#include "canzona/checkpoint/shard_writer.h"

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/master_bits.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/base/units.h"

namespace canzona::checkpoint {
namespace {

constexpr int64_t kLengthBytes = 8;

void append_little_endian(std::string& out, uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i)
    out += static_cast<char>(number >> (8 * i) & 0xFF);
}

// Adds the data's length to `bytes`.
void write_header_entry(JsonWriter& out, const TensorEntry& tensor,
                        int64_t& bytes) {
  const int64_t begin = bytes;
  bytes = checked_add(begin,
                      checked_mul(elements_of(tensor.shape),
                                  size_of(tensor.type), "bytes of a tensor"),
                      "bytes of a file");
  out.member(tensor.name).begin_object();
  out.field("dtype", name_in_file(tensor.type));
  out.member("shape").values(tensor.shape);
  out.member("data_offsets").values(std::vector<int64_t>{begin, bytes});
  out.end_object();
}

void require_different(const std::vector<TensorEntry>& tensors) {
  std::set<std::string_view> names = {"__metadata__"};
  for (const TensorEntry& tensor : tensors)
    if (!names.insert(tensor.name).second)
      throw UsageError(
          cat("safetensors: the name ", quoted(tensor.name), " comes twice"));
}

std::string encoded(std::span<const float> values, DType type) {
  std::string bytes;
  bytes.reserve(values.size() * static_cast<size_t>(size_of(type)));
  for (const float value : values) {
    if (type == DType::kFp32)
      append_little_endian(bytes, std::bit_cast<uint32_t>(value), 4);
    else
      append_little_endian(bytes,
                           weight_of_master(std::bit_cast<uint32_t>(value)), 2);
  }
  return bytes;
}

}  // namespace

SafetensorsStart safetensors_start(
    const std::vector<TensorEntry>& tensors,
    const std::map<std::string, std::string>& metadata) {
  require_different(tensors);
  SafetensorsStart start;
  JsonWriter out;
  out.begin_object();
  if (!metadata.empty()) {
    out.member("__metadata__").begin_object();
    for (const auto& [key, text] : metadata) out.field(key, text);
    out.end_object();
  }
  int64_t data_bytes = 0;
  for (const TensorEntry& tensor : tensors) {
    start.offsets.push_back(data_bytes);
    write_header_entry(out, tensor, data_bytes);
  }
  std::string header = out.end_object().take();
  // Aligns the data for readers that map the file.
  header.resize(
      (header.size() + kLengthBytes - 1) / kLengthBytes * kLengthBytes, ' ');
  append_little_endian(start.bytes, header.size(), kLengthBytes);
  start.bytes += header;
  for (int64_t& offset : start.offsets) offset += std::ssize(start.bytes);
  start.file_bytes =
      checked_add(std::ssize(start.bytes), data_bytes, "bytes of a file");
  return start;
}

SafetensorsWriter::SafetensorsWriter(
    const std::string& path, std::vector<TensorEntry> tensors,
    const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)), file_(path) {
  for (const TensorEntry& tensor : tensors_)
    CANZONA_CHECK(tensor.type == DType::kFp32 || tensor.type == DType::kBf16,
                  tensor.name, ": no floats of type ",
                  name_in_file(tensor.type));
  put(safetensors_start(tensors_, metadata).bytes);
  if (!tensors_.empty()) left_ = elements_of(tensors_[0].shape);
  skip_full_tensors();
}

void SafetensorsWriter::add(std::span<const float> values) {
  constexpr size_t kPiece = 1 << 16;
  while (!values.empty()) {
    CANZONA_CHECK(current_ < tensors_.size(), values.size(),
                  " elements more than the tensors have");
    const size_t count =
        std::min({values.size(), kPiece, static_cast<size_t>(left_)});
    put(encoded(values.first(count), tensors_[current_].type));
    values = values.subspan(count);
    left_ -= static_cast<int64_t>(count);
    skip_full_tensors();
  }
}

void SafetensorsWriter::put(std::string_view bytes) {
  hash_.add(bytes);
  file_.write(bytes);
}

void SafetensorsWriter::skip_full_tensors() {
  while (left_ == 0 && current_ < tensors_.size()) {
    if (++current_ < tensors_.size())
      left_ = elements_of(tensors_[current_].shape);
  }
}

std::string SafetensorsWriter::finish() {
  CANZONA_CHECK(current_ == tensors_.size(), "tensor ", tensors_[current_].name,
                " lacks ", left_, " elements");
  file_.finish();
  return hash_.hex();
}

namespace {

// The limit of the reference implementation; ours are far smaller.
constexpr int64_t kMaxShardHeader = 16 << 20;

// Computes SHA-256 in a thread beside the writing one, so that the slower of
// the two counts, not their sum.
class BackgroundSha256 {
 public:
  BackgroundSha256() : thread_([this] { work(); }) {}
  ~BackgroundSha256() {
    wait();
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // `bytes` must not change until wait() has returned.
  void add(std::string_view bytes) {
    wait();
    {
      const std::lock_guard lock(mutex_);
      bytes_ = bytes;
    }
    changed_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return bytes_.empty(); });
  }
  std::string hex() {
    wait();
    return hash_.hex();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || !bytes_.empty(); });
      if (stop_) return;
      const std::string_view bytes = bytes_;
      lock.unlock();
      hash_.add(bytes);
      lock.lock();
      bytes_ = {};
      changed_.notify_all();
    }
  }

  Sha256 hash_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string_view bytes_;  // being hashed; empty: idle
  bool stop_ = false;
  std::thread thread_;
};

// A file that is hashed chunk by chunk while it is written.
class HashedFile {
 public:
  HashedFile(OutputFile file, std::string name, int64_t bytes, Hashing hashing)
      : file_(std::move(file)) {
    record_.name = std::move(name);
    record_.bytes = bytes;
    const auto room = static_cast<size_t>(std::min(bytes, kChunkBytes));
    buffers_[0].resize(room);
    if (bytes > kChunkBytes && hashing == Hashing::kBeside) {
      buffers_[1].resize(room);
      background_ = std::make_unique<BackgroundSha256>();
    }
  }

  // Space for the next bytes: fill some of it, then call advance().
  std::span<std::byte> room() {
    return std::as_writable_bytes(std::span(buffers_[current_])).subspan(used_);
  }
  void advance(size_t count) {
    used_ += count;
    written_ += static_cast<int64_t>(count);
    if (used_ == buffers_[current_].size() || written_ == record_.bytes)
      write_chunk();
  }
  void add(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::span<std::byte> to = room();
      const size_t count = std::min(to.size(), bytes.size());
      std::memcpy(to.data(), bytes.data(), count);
      bytes.remove_prefix(count);
      advance(count);
    }
  }

  FileRecord finish() {
    CANZONA_CHECK_EQ(written_, record_.bytes, "bytes of ", record_.name);
    record_.sha256 = background_ ? background_->hex() : hash_.hex();
    file_.finish();
    return std::move(record_);
  }

 private:
  void write_chunk() {
    if (used_ == 0) return;
    const std::string_view chunk =
        std::string_view(buffers_[current_]).substr(0, used_);
    if (background_)
      background_->add(chunk);
    else
      hash_.add(chunk);
    Checksum sum;
    sum.add(chunk);
    record_.chunks.push_back(sum.hex());
    file_.write(chunk);
    used_ = 0;
    // The other buffer is free: its hash was awaited when this one's began.
    if (background_) current_ = 1 - current_;
  }

  OutputFile file_;
  FileRecord record_;
  std::array<std::string, 2> buffers_;
  size_t current_ = 0;
  size_t used_ = 0;
  int64_t written_ = 0;
  Sha256 hash_;
  std::unique_ptr<BackgroundSha256> background_;  // hashes of the buffers
};

// The sources that have bytes, and the beginning of the file.
struct ShardLayout {
  std::vector<size_t> stored;  // indices of sources
  SafetensorsStart start;
};

// Returns the sources that have elements, larger types first, so that each box
// lies at a multiple of its element size.
std::vector<size_t> stored_sources(const std::vector<BoxSource>& sources,
                                   const std::string& where) {
  std::vector<size_t> stored;
  for (size_t i = 0; i < sources.size(); ++i) {
    const BoxSource& source = sources[i];
    check_tensor(source.tensor, where);
    if (elements_of(source.tensor.shape) == 0 ||
        elements_of(source.box.count) == 0)
      continue;
    check_box(source.tensor, source.box, where);
    stored.push_back(i);
  }
  std::ranges::stable_sort(stored, std::greater<>(), [&](size_t i) {
    return size_of(sources[i].tensor.type);
  });
  return stored;
}

ShardLayout layout_of(const std::vector<BoxSource>& sources) {
  ShardLayout layout{stored_sources(sources, "checkpoint"), {}};
  std::vector<TensorEntry> entries;
  std::map<std::string_view, int> times;
  for (const size_t i : layout.stored) {
    const BoxSource& source = sources[i];
    const int time = ++times[source.tensor.name];
    entries.push_back(
        {time == 1 ? source.tensor.name : cat(source.tensor.name, "#", time),
         source.tensor.type, source.box.count});
  }
  layout.start = safetensors_start(entries, {{"format", "pt"}});
  if (std::ssize(layout.start.bytes) > kMaxShardHeader)
    throw UsageError(cat(
        "checkpoint: ", entries.size(), " boxes of one rank make a header of ",
        layout.start.bytes.size(), " bytes, the limit is ", kMaxShardHeader));
  return layout;
}

void add_source(HashedFile& file, const BoxSource& source) {
  const int64_t bytes = bytes_of(source.tensor, source.box);
  if (!source.fill) {
    CANZONA_CHECK_EQ(std::ssize(source.data), bytes, "bytes of ",
                     source.tensor.name, " ", to_string(source.box));
    file.add({reinterpret_cast<const char*>(source.data.data()),
              source.data.size()});
    return;
  }
  for (int64_t done = 0; done < bytes;) {
    const std::span<std::byte> room = file.room();
    const int64_t count = std::min(std::ssize(room), bytes - done);
    source.fill(done, room.first(static_cast<size_t>(count)));
    file.advance(static_cast<size_t>(count));
    done += count;
  }
}

std::vector<SavedTensor> saved_tensors(const std::vector<BoxSource>& sources,
                                       const ShardLayout& layout) {
  std::map<std::string_view, SavedTensor> tensors;
  for (const BoxSource& source : sources) {
    SavedTensor& saved = tensors[source.tensor.name];
    if (!saved.tensor.name.empty() && saved.tensor != source.tensor)
      throw UsageError(cat("checkpoint: tensor ", quoted(source.tensor.name),
                           " is given with two types or shapes"));
    saved.tensor = source.tensor;
  }
  for (size_t i = 0; i < layout.stored.size(); ++i) {
    const BoxSource& source = sources[layout.stored[i]];
    tensors[source.tensor.name].boxes.push_back(
        {0, layout.start.offsets[i], source.box});
  }
  std::vector<SavedTensor> out;
  for (auto& [name, saved] : tensors) out.push_back(std::move(saved));
  return out;
}

}  // namespace

int64_t shard_bytes(const std::vector<BoxSource>& sources) {
  return layout_of(sources).start.file_bytes;
}

std::string write_shard(const Folder& folder, const ShardOrigin& origin,
                        const std::vector<BoxSource>& sources,
                        Hashing hashing) {
  const ShardLayout layout = layout_of(sources);
  Manifest record;
  record.step = origin.step;
  record.world = origin.world;
  record.tensors = saved_tensors(sources, layout);
  const std::string name = shard_name(origin.rank);
  HashedFile file(folder.create(name), name, layout.start.file_bytes, hashing);
  file.add(layout.start.bytes);
  for (const size_t i : layout.stored) add_source(file, sources[i]);
  record.files = {file.finish()};
  return manifest_text(record);
}

FileRecord write_side_file(const Folder& folder, const std::string& name,
                           std::string_view text) {
  HashedFile file(folder.create(name), name, std::ssize(text),
                  Hashing::kInTurn);
  file.add(text);
  return file.finish();
}

}  // namespace canzona::checkpoint
