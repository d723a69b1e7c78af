#include "canzona/checkpoint/reader.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/shapes/records.h"
#include "canzona/shapes/safetensors.h"

namespace canzona::checkpoint {
namespace {

// Small enough to stay in a core's cache from read to copy.
constexpr int64_t kPieceBytes = 256 << 10;

// Runs work(0) … work(count − 1) on this many threads; rethrows the first
// error.
template <class Work>
void in_threads(size_t count, int threads, const Work& work) {
  std::atomic<size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  const size_t wanted = std::min(count, index(std::max(threads, 1)));
  for (size_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
  for (std::thread& other : others) other.join();
  if (error) std::rethrow_exception(error);
}

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Calls use(offset, bytes) for pieces of [begin, end), in order.
template <class Use>
void read_pieces(const InputFile& file, int64_t begin, int64_t end,
                 std::vector<std::byte>& buffer, const Use& use) {
  buffer.resize(
      index(std::min(kPieceBytes, std::max<int64_t>(end - begin, 0))));
  for (int64_t at = begin; at < end;) {
    const std::span<std::byte> piece =
        std::span(buffer).first(index(std::min(kPieceBytes, end - at)));
    file.read(at, piece);
    use(at, std::span<const std::byte>(piece));
    at += std::ssize(piece);
  }
}

// A target box and a saved box that share elements.
struct SharedPart {
  SharedRuns runs;
  int64_t begin;  // of the saved box, in its file
  int64_t end;
  std::byte* to;

  // Copies the elements that lie in a piece of the file.
  void copy(int64_t at, std::span<const std::byte> piece) const {
    const int64_t piece_end = at + std::ssize(piece);
    for (int64_t run = runs.first_behind(std::max(at - begin, int64_t{0}));
         run < runs.count(); ++run) {
      const int64_t from = begin + runs.in_source(run);
      if (from >= piece_end) break;
      const int64_t skipped = std::max(at - from, int64_t{0});
      const int64_t last = std::min(from + runs.bytes(), piece_end);
      std::memcpy(to + runs.in_target(run) + skipped,
                  piece.data() + (from + skipped - at),
                  index(last - from - skipped));
    }
  }
};

// A chunk of a file to read, and the parts that have bytes in it.
struct ChunkWork {
  int64_t file;
  int64_t chunk;
  std::vector<const SharedPart*> parts;
};

struct LoadPlan {
  std::vector<std::unique_ptr<SharedPart>> parts;
  std::vector<ChunkWork> chunks;
};

// Returns the tensor that a target names, after checking its box and bytes.
const SavedTensor& saved_for(const Manifest& manifest,
                             const BoxTarget& target) {
  const SavedTensor* saved = manifest.find(target.tensor);
  if (saved == nullptr)
    throw UsageError(
        cat("the checkpoint has no tensor ", quoted(target.tensor)));
  if (!target.to.empty() || elements_of(target.box.count) != 0)
    check_box(saved->tensor, target.box, "load");
  CANZONA_CHECK_EQ(std::ssize(target.to), bytes_of(saved->tensor, target.box),
                   "bytes for ", target.tensor, " ", to_string(target.box));
  return *saved;
}

LoadPlan plan_load(const Manifest& manifest,
                   const std::vector<BoxTarget>& targets) {
  LoadPlan plan;
  std::map<std::pair<int64_t, int64_t>, std::vector<const SharedPart*>> chunks;
  for (const BoxTarget& target : targets) {
    const SavedTensor& saved = saved_for(manifest, target);
    if (target.to.empty()) continue;
    for (const SavedBox& box : saved.boxes) {
      if (!intersection(box.box, target.box)) continue;
      const int64_t size = size_of(saved.tensor.type);
      plan.parts.push_back(std::make_unique<SharedPart>(SharedPart{
          SharedRuns(box.box, target.box, size), box.offset,
          box.offset + bytes_of(saved.tensor, box.box), target.to.data()}));
      const SharedPart& part = *plan.parts.back();
      const int64_t last_run = part.runs.count() - 1;
      const int64_t first = part.begin + part.runs.in_source(0);
      const int64_t end =
          part.begin + part.runs.in_source(last_run) + part.runs.bytes();
      for (int64_t c = first / manifest.chunk_bytes;
           c <= (end - 1) / manifest.chunk_bytes; ++c)
        chunks[{box.file, c}].push_back(&part);
    }
  }
  for (auto& [place, parts] : chunks)
    plan.chunks.push_back({place.first, place.second, std::move(parts)});
  return plan;
}

void add_listed(std::string& text, const std::vector<std::string>& names,
                std::string_view what) {
  constexpr size_t kShown = 10;
  if (names.empty()) return;
  text += cat("\n", counted_text(std::ssize(names), "tensor"), " ", what, ":");
  for (size_t i = 0; i < std::min(names.size(), kShown); ++i)
    text += cat("\n  ", names[i]);
  if (names.size() > kShown)
    text += cat("\n  … and ", names.size() - kShown, " more");
}

}  // namespace

std::string manifest_hash_of(std::string_view manifest_text) {
  constexpr size_t kDigits = 64;
  constexpr std::string_view kEnd = "\"}\n";
  CANZONA_CHECK(manifest_text.size() > kDigits + kEnd.size(), "no manifest");
  manifest_text.remove_suffix(kEnd.size());
  return std::string(manifest_text.substr(manifest_text.size() - kDigits));
}

CheckpointReader::CheckpointReader(Folder folder) : folder_(std::move(folder)) {
  try {
    const std::string text =
        folder_.read_file(kManifestFile, kMaxManifestBytes);
    manifest_ = parse_manifest(text, cat(folder_.path(), "/", kManifestFile));
    manifest_hash_ = manifest_hash_of(text);
  } catch (const UsageError& error) {
    throw CheckpointRefused(error.what());
  } catch (const CheckpointRefused&) {
    throw;
  } catch (const DataLost& error) {
    throw CheckpointRefused(cat(error.what(), ": no checkpoint"));
  }
  boxes_of_.resize(manifest_.files.size());
  for (size_t t = 0; t < manifest_.tensors.size(); ++t)
    for (size_t b = 0; b < manifest_.tensors[t].boxes.size(); ++b)
      boxes_of_[index(manifest_.tensors[t].boxes[b].file)].push_back({t, b});
  const std::string& path = folder_.path();
  const std::optional<int64_t> step =
      step_of_name(std::string_view(path).substr(path.rfind('/') + 1));
  if (step && *step != manifest_.step)
    throw CheckpointRefused(cat(quoted(path, 300), ": its manifest is of step ",
                                manifest_.step,
                                ": the folder was renamed, or the manifest "
                                "comes from another checkpoint"));
}

void CheckpointReader::check_size(const InputFile& file,
                                  const FileRecord& record) const {
  if (file.size() == record.bytes) return;
  throw CheckpointRefused(
      cat(quoted(file.path(), 300), " has ", file.size(), " bytes, expected ",
          record.bytes,
          file.size() < record.bytes ? ": it was cut short" : ": it has grown",
          " (step ", manifest_.step, ")"));
}

std::vector<std::string> CheckpointReader::check_files() const {
  std::vector<std::string> problems;
  std::set<std::string_view> known;
  for (const FileRecord& record : manifest_.files) {
    known.insert(record.name);
    try {
      check_size(folder_.open_file(record.name), record);
    } catch (const DataLost& error) {
      problems.push_back(error.what());
    }
  }
  for (const FolderEntry& entry : folder_.entries())
    if (entry.name.starts_with("rank_") && !known.contains(entry.name))
      problems.push_back(cat(quoted(folder_.path() + "/" + entry.name, 300),
                             " is not part of this checkpoint"));
  return problems;
}

std::string CheckpointReader::tensors_in(int64_t file, int64_t begin,
                                         int64_t end) const {
  constexpr size_t kShown = 3;
  std::vector<std::string> names;
  for (const Place& place : boxes_of_[index(file)]) {
    const SavedTensor& saved = manifest_.tensors[place.tensor];
    const SavedBox& box = saved.boxes[place.box];
    const bool is_inside = box.offset < end &&
                           box.offset + bytes_of(saved.tensor, box.box) > begin;
    std::string name = cat("tensor ", quoted(saved.tensor.name));
    // A tensor may have several boxes in a file.
    if (is_inside && std::ranges::find(names, name) == names.end())
      names.push_back(std::move(name));
  }
  if (names.empty())
    return is_shard_name(manifest_.files[index(file)].name) ? " (its header)"
                                                            : "";
  const bool more = names.size() > kShown;
  const size_t left = names.size() - std::min(names.size(), kShown);
  names.resize(std::min(names.size(), kShown));
  return cat(" (", join(names, ", "), more ? cat(" and ", left, " more") : "",
             ")");
}

// Names are those that write_shard() gives: "name#2" for the second box.
void CheckpointReader::check_header(int64_t file) const {
  const FileRecord& record = manifest_.files[index(file)];
  const InputFile input = folder_.open_file(record.name);
  check_size(input, record);
  SafetensorsHeader header;
  try {
    std::string start(index(std::min(record.bytes, kSafetensorsLengthBytes)),
                      '\0');
    input.read(0, std::as_writable_bytes(std::span(start)));
    const int64_t length =
        safetensors_header_length(start, record.bytes, input.path());
    start.resize(index(kSafetensorsLengthBytes + length));
    input.read(0, std::as_writable_bytes(std::span(start)));
    header = read_safetensors_header(start, record.bytes, input.path());
  } catch (const UsageError& error) {
    throw CheckpointRefused(error.what());
  }
  std::map<int64_t, const StoredTensor*> stored;  // by offset
  for (const StoredTensor& tensor : header.tensors)
    stored[tensor.begin] = &tensor;
  for (const Place& place : boxes_of_[index(file)]) {
    const SavedTensor& saved = manifest_.tensors[place.tensor];
    const SavedBox& box = saved.boxes[place.box];
    const auto found = stored.find(box.offset);
    const std::string name =
        found == stored.end()
            ? ""
            : found->second->name.substr(0, found->second->name.find('#'));
    if (name == saved.tensor.name &&
        found->second->dtype == name_in_file(saved.tensor.type) &&
        found->second->shape == box.box.count)
      continue;
    throw CheckpointRefused(
        cat(quoted(input.path(), 300), ": the manifest has tensor ",
            quoted(saved.tensor.name), " ", to_string(box.box), " at byte ",
            box.offset, ", the file's header ",
            found == stored.end() ? std::string("nothing")
                                  : quoted(found->second->name)));
  }
  const size_t matched = boxes_of_[index(file)].size();
  if (matched != header.tensors.size())
    throw CheckpointRefused(cat(quoted(input.path(), 300), " has ",
                                header.tensors.size(),
                                " tensors, the manifest ", matched));
}

std::vector<std::string> CheckpointReader::verify_file(int64_t file) const {
  const FileRecord& record = manifest_.files[index(file)];
  const InputFile input = folder_.open_file(record.name);
  check_size(input, record);
  std::vector<std::string> problems;
  std::vector<std::byte> buffer;
  Sha256 hash;
  for (size_t c = 0; c < record.chunks.size(); ++c) {
    const int64_t begin = static_cast<int64_t>(c) * manifest_.chunk_bytes;
    const int64_t end = std::min(begin + manifest_.chunk_bytes, record.bytes);
    Checksum sum;
    read_pieces(input, begin, end, buffer,
                [&](int64_t, std::span<const std::byte> piece) {
                  sum.add(as_text(piece));
                  hash.add(as_text(piece));
                });
    if (sum.hex() != record.chunks[c])
      problems.push_back(cat(quoted(input.path(), 300), ": bytes ", begin,
                             " to ", end, " are damaged",
                             tensors_in(file, begin, end)));
  }
  if (problems.empty() && hash.hex() != record.sha256)
    problems.push_back(cat(quoted(input.path(), 300),
                           ": its SHA-256 differs from that in the manifest"));
  if (problems.empty() && is_shard_name(record.name)) check_header(file);
  return problems;
}

std::vector<std::string> CheckpointReader::verify(int threads) const {
  std::vector<std::string> problems = check_files();
  if (!problems.empty()) return problems;
  std::vector<std::vector<std::string>> found(manifest_.files.size());
  in_threads(found.size(), threads, [&](size_t i) {
    try {
      found[i] = verify_file(static_cast<int64_t>(i));
    } catch (const DataLost& error) {
      found[i] = {error.what()};
    }
  });
  for (const auto& list : found)
    problems.insert(problems.end(), list.begin(), list.end());
  return problems;
}

std::string CheckpointReader::side_file(const std::string& name) const {
  constexpr int64_t kMaxSideFile = 256 << 20;
  const auto record =
      std::ranges::find(manifest_.files, name, &FileRecord::name);
  if (record == manifest_.files.end() || !is_side_file_name(name))
    throw CheckpointRefused(
        cat(quoted(path(), 300), " has no file ", quoted(name)));
  std::string text = folder_.read_file(name, kMaxSideFile);
  if (sha256_hex(text) != record->sha256)
    throw CheckpointRefused(
        cat(quoted(path() + "/" + name, 300), " is damaged"));
  return text;
}

void CheckpointReader::load(const std::vector<BoxTarget>& targets,
                            const LoadOptions& options) const {
  const LoadPlan plan = plan_load(manifest_, targets);
  const std::vector<std::string> problems = check_files();
  if (!problems.empty()) throw CheckpointRefused(problems.front());
  std::map<int64_t, InputFile> files;
  for (const ChunkWork& work : plan.chunks) {
    if (files.contains(work.file)) continue;
    if (options.check) check_header(work.file);
    files.emplace(work.file,
                  folder_.open_file(manifest_.files[index(work.file)].name));
  }
  in_threads(plan.chunks.size(), options.threads, [&](size_t i) {
    const ChunkWork& work = plan.chunks[i];
    const FileRecord& record = manifest_.files[index(work.file)];
    const InputFile& file = files.at(work.file);
    const int64_t begin = work.chunk * manifest_.chunk_bytes;
    const int64_t end = std::min(begin + manifest_.chunk_bytes, record.bytes);
    thread_local std::vector<std::byte> buffer;
    Checksum sum;
    read_pieces(file, begin, end, buffer,
                [&](int64_t at, std::span<const std::byte> piece) {
                  if (options.check) sum.add(as_text(piece));
                  for (const SharedPart* part : work.parts)
                    part->copy(at, piece);
                });
    if (options.check && sum.hex() != record.chunks[index(work.chunk)])
      throw CheckpointRefused(cat(quoted(file.path(), 300), ": bytes ", begin,
                                  " to ", end, " are damaged",
                                  tensors_in(work.file, begin, end)));
  });
}

CheckpointReader open_checkpoint(const std::string& path, FileSystem& system) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return CheckpointReader(Folder::open(folder, system));
}

std::vector<std::string> match_tensors(const Manifest& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness) {
  SavedTensors list{
      cat("the checkpoint of step ", saved.step), "the checkpoint", {}};
  for (const SavedTensor& tensor : saved.tensors)
    list.tensors.push_back(tensor.tensor);
  return match_tensors(list, wanted, strictness);
}

std::vector<std::string> match_tensors(const SavedTensors& saved,
                                       const std::vector<LogicalTensor>& wanted,
                                       Strictness strictness) {
  std::vector<std::string> missing;
  std::vector<std::string> other;
  std::set<std::string_view> names;
  std::map<std::string_view, const LogicalTensor*> found;
  for (const LogicalTensor& tensor : saved.tensors)
    found.emplace(tensor.name, &tensor);
  for (const LogicalTensor& tensor : wanted) {
    names.insert(tensor.name);
    const auto same = found.find(tensor.name);
    if (same == found.end())
      missing.push_back(quoted(tensor.name));
    else if (*same->second != tensor)
      other.push_back(
          cat(quoted(tensor.name), ": saved ", name_in_file(same->second->type),
              " ", shape_text(same->second->shape), ", expected ",
              name_in_file(tensor.type), " ", shape_text(tensor.shape)));
  }
  std::vector<std::string> extra;
  for (const LogicalTensor& tensor : saved.tensors)
    if (!names.contains(tensor.name)) extra.push_back(quoted(tensor.name));
  std::string refused;
  add_listed(refused, other, "of another type or shape");
  if (strictness != Strictness::kWarn)
    add_listed(
        refused, missing,
        cat(missing.size() == 1 ? "is" : "are", " missing in ", saved.noun));
  if (strictness == Strictness::kExact)
    add_listed(refused, extra, cat("that only ", saved.noun, " has"));
  if (!refused.empty())
    throw CheckpointRefused(cat(saved.whole, " does not fit:", refused));
  std::vector<std::string> notes;
  if (strictness != Strictness::kWarn) return notes;
  for (const std::string& name : missing)
    notes.push_back(cat("tensor ", name, " is missing in ", saved.noun));
  for (const std::string& name : extra)
    notes.push_back(cat("tensor ", name, " is only in ", saved.noun));
  return notes;
}

}  // namespace canzona::checkpoint
