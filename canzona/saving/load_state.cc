#include "canzona/saving/load_state.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/comm/from_all.h"
#include "canzona/saving/run_saver.h"

namespace canzona {
using namespace saving;
namespace {

// Numbers that cannot be read directly into place go through this much memory,
// in pieces of this size.
constexpr int64_t kStagedElements = int64_t{8} << 20;
constexpr int64_t kPieceElements = int64_t{2} << 20;

std::string join_path(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 0) return {};
  return number;
}

// Returns the paths of checkpoints in the order in which they are tried.
std::vector<std::string> candidates_of(const LoadRequest& request) {
  std::vector<std::string> paths;
  if (request.which == "auto") {
    for (const ListedCheckpoint& found :
         resume_order(Folder::open(request.folder)))
      paths.push_back(join_path(request.folder, found.name));
    if (paths.empty())
      throw UsageError(cat("no checkpoint in ", quoted(request.folder)));
  } else if (const std::optional<int64_t> step = whole_number(request.which)) {
    paths.push_back(join_path(request.folder, checkpoint_name(*step)));
    if (!is_folder(paths[0])) {
      std::string steps;
      for (const ListedCheckpoint& found :
           list_checkpoints(Folder::open(request.folder)))
        steps += cat(steps.empty() ? "" : ", ", found.step);
      throw UsageError(cat("no checkpoint of step ", *step, " in ",
                           quoted(request.folder), ", which has ",
                           steps.empty() ? "none" : "those of " + steps));
    }
  } else {
    paths.push_back(request.which);
  }
  return paths;
}

// Splits a box into boxes of a few rows.
void append_pieces(const RankState& state, std::vector<RankState>& pieces) {
  if (state.elements <= kPieceElements || state.count.empty()) {
    pieces.push_back(state);
    return;
  }
  const int64_t row = state.elements / state.count[0];
  const int64_t rows = std::max<int64_t>(kPieceElements / row, 1);
  for (int64_t done = 0; done < state.count[0]; done += rows) {
    RankState piece = state;
    piece.first[0] += done;
    piece.count[0] = std::min(rows, state.count[0] - done);
    piece.at += done * row;
    piece.elements = piece.count[0] * row;
    pieces.push_back(std::move(piece));
  }
}

// Loads what one rank keeps.
class RankLoader {
 public:
  RankLoader(Runtime& runtime, const LoadRequest& request)
      : runtime_(runtime),
        options_{.threads = request.threads},
        begins_missing_(request.begins_missing) {
    runtime.for_each_state([&](const RankState& state) {
      if (request.weights_only && !state.state.empty()) return;
      states_.push_back(state);
    });
  }

  // Returns how many elements this rank loads on behalf of all.
  int64_t given() const {
    int64_t elements = 0;
    for (const RankState& state : states_)
      if (state.given) elements += state.elements;
    return elements;
  }

  // Throws CheckpointRefused with a list of tensors that are missing or have
  // other shapes.
  void load(const CheckpointReader& reader) {
    if (begins_missing_)
      std::erase_if(states_, [&](const RankState& state) {
        const bool begins = !state.state.empty() &&
                            reader.manifest().find(state.name()) == nullptr;
        if (begins)
          notes_.insert(cat("the checkpoint has no states ",
                            quoted(state.state), ": they begin anew"));
        return begins;
      });
    match_tensors(reader.manifest(), wanted(), Strictness::kIgnoreExtra);
    std::vector<BoxTarget> targets;
    std::vector<RankState> staged;
    for (const RankState& state : states_) {
      if (state.values.empty())
        append_pieces(state, staged);
      else
        targets.push_back({state.name(), box_of(state),
                           std::as_writable_bytes(state.values)});
    }
    reader.load(targets, options_);
    load_staged(reader, staged);
  }

  std::vector<std::string> notes() const {
    return {notes_.begin(), notes_.end()};
  }

  std::vector<LogicalTensor> wanted() const {
    std::vector<LogicalTensor> tensors;
    std::set<std::string> known;
    for (const RankState& state : states_)
      if (known.insert(state.name()).second)
        tensors.push_back(tensor_of(state));
    return tensors;
  }

 private:
  void load_staged(const CheckpointReader& reader,
                   const std::vector<RankState>& pieces) const {
    std::vector<float> staging;
    for (size_t next = 0; next < pieces.size();) {
      const size_t begin = next;
      int64_t elements = 0;
      do {
        elements += pieces[next++].elements;
      } while (next < pieces.size() &&
               elements + pieces[next].elements <= kStagedElements);
      staging.resize(index(elements));
      std::vector<std::span<float>> values;
      std::vector<BoxTarget> targets;
      size_t at = 0;
      for (size_t i = begin; i < next; ++i) {
        values.push_back(
            std::span(staging).subspan(at, index(pieces[i].elements)));
        at += values.back().size();
        targets.push_back({pieces[i].name(), box_of(pieces[i]),
                           std::as_writable_bytes(values.back())});
      }
      reader.load(targets, options_);
      for (size_t i = begin; i < next; ++i)
        runtime_.set_state(pieces[i], values[i - begin]);
    }
  }

  Runtime& runtime_;
  LoadOptions options_;
  bool begins_missing_;
  std::set<std::string> notes_;
  std::vector<RankState> states_;
};

bool is_loaded(const SavedTensor& saved, bool weights_only) {
  const std::string& name = saved.tensor.name;
  return name.starts_with("model/") ||
         (!weights_only && name.starts_with("optim/"));
}

// Returns on rank 0 the names that any rank wants.
std::set<std::string> wanted_by_all(Communicator& world,
                                    const RankLoader& loader) {
  std::vector<char> own;
  for (const LogicalTensor& tensor : loader.wanted()) {
    own.insert(own.end(), tensor.name.begin(), tensor.name.end());
    own.push_back('\n');
  }
  std::set<std::string> names;
  for (const std::vector<char>& row : to_first<char>(world, own)) {
    auto begin = row.begin();
    for (auto end = begin;
         (end = std::find(begin, row.end(), '\n')) != row.end();
         begin = end + 1)
      names.emplace(begin, end);
  }
  return names;
}

// Checks that every tensor of a checkpoint is wanted by some rank. Counts
// first, since there are many names.
void require_no_extra(Communicator& world, const RankLoader& loader,
                      const CheckpointReader& reader, bool weights_only) {
  int64_t given = 0, saved = 0;
  for (const int64_t elements : one_from_all(world, loader.given()))
    given += elements;
  for (const SavedTensor& tensor : reader.manifest().tensors)
    if (is_loaded(tensor, weights_only))
      saved += elements_of(tensor.tensor.shape);
  if (given == saved) return;
  const std::set<std::string> names = wanted_by_all(world, loader);
  at_first(world, [&] {
    std::vector<LogicalTensor> wanted;
    Manifest relevant;
    relevant.step = reader.manifest().step;
    for (const SavedTensor& tensor : reader.manifest().tensors) {
      if (!is_loaded(tensor, weights_only)) continue;
      relevant.tensors.push_back(tensor);
      if (names.contains(tensor.tensor.name)) wanted.push_back(tensor.tensor);
    }
    match_tensors(relevant, wanted, Strictness::kExact);
  });
}

int64_t steps_in(const CheckpointReader& reader) {
  match_tensors(reader.manifest(), {steps_tensor()}, Strictness::kIgnoreExtra);
  int64_t steps = 0;
  reader.load({{steps_tensor().name,
                {},
                std::as_writable_bytes(std::span(&steps, 1))}});
  if (steps < 0)
    throw CheckpointRefused(cat(quoted(reader.path()), ": ", steps,
                                " steps done; expected 0 or more"));
  return steps;
}

LoadedState told(const CheckpointReader& reader,
                 std::vector<std::string> notes) {
  LoadedState loaded{.step = reader.manifest().step,
                     .path = reader.path(),
                     .notes = std::move(notes),
                     .side_files = {}};
  for (const FileRecord& file : reader.manifest().files)
    if (is_side_file_name(file.name))
      loaded.side_files[file.name] = reader.side_file(file.name);
  return loaded;
}

// Loads from one checkpoint; failures of other ranks are handled by the caller.
LoadedState load_from(const std::string& path, RankLoader& loader,
                      Runtime& runtime, Communicator& world,
                      const LoadRequest& request) {
  std::optional<CheckpointReader> reader;
  LoadedState loaded;
  int64_t steps = 0;
  require_all(world, outcome_of([&] {
                reader.emplace(open_checkpoint(path));
                loader.load(*reader);
                if (!request.weights_only) steps = steps_in(*reader);
                loaded = told(*reader, loader.notes());
              }));
  require_no_extra(world, loader, *reader, request.weights_only);
  runtime.take_over(steps);
  return loaded;
}

// Returns rank 0's texts on all ranks.
std::vector<std::string> texts_from_first(Communicator& world,
                                          const std::vector<std::string>& own) {
  std::string text;
  for (const std::string& line : own) text += line + '\0';
  std::vector<std::string> lines;
  text = from_first(world, text);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\0', begin);
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace

bool has_checkpoint(const std::string& folder) {
  return is_folder(folder) && !list_checkpoints(Folder::open(folder)).empty();
}

LoadedState load_state(Runtime& runtime, Communicator& world,
                       const LoadRequest& request) {
  std::vector<std::string> paths;
  at_first(world, [&] { paths = candidates_of(request); });
  paths = texts_from_first(world, paths);
  RankLoader loader(runtime, request);
  std::vector<std::string> notes;
  for (size_t i = 0;; ++i) {
    try {
      LoadedState loaded = load_from(paths[i], loader, runtime, world, request);
      loaded.notes.insert(loaded.notes.begin(), notes.begin(), notes.end());
      return loaded;
    } catch (const CheckpointRefused& error) {
      notes.push_back(cat("skipped ", paths[i], ": ", error.what()));
      if (paths.size() == 1 || request.begins_missing) throw;
      if (i + 1 < paths.size()) continue;
      std::string all = "no checkpoint can be loaded";
      for (const std::string& note : notes) all += "\n  " + note;
      throw CheckpointRefused(all);
    }
  }
}

}  // namespace canzona
