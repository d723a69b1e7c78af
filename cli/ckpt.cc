// `canzona ckpt`: shows and checks checkpoints, removes old ones, and converts
// weights to Hugging Face folders.
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/train/model_source.h"
#include "cli/ckpt_view.h"
#include "cli/options.h"
#include "cli/output.h"
#include "cli/run_model.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kCkptExamples =
    R"(A checkpoint is a folder step_NNNNNNNN with one file per rank and a manifest, which records where
everything is stored and hashes that cover every byte. PATH is a run's folder (runs/one), the
folder of its checkpoints (runs/one/ckpt), or one checkpoint (runs/one/ckpt/step_00001000).

Examples:
  canzona ckpt ls runs/one
  canzona ckpt inspect runs/one --step 1000 --tensors 'optim/*'
  canzona ckpt verify runs/one
  canzona ckpt prune runs/one --keep-last 2 --dry-run
  canzona ckpt export runs/one --hf out/one --dtype bf16

Exit status: 0 success, 2 no such folder or option, 3 a checkpoint is damaged or cannot be read by
this version, 6 the disk is full or reports an error.
)";

constexpr const char* kLsExamples =
    R"(Reads manifests and compares file sizes; it does not read data, as `canzona ckpt verify` does.
"latest" marks the checkpoint that a run resumes from first, unless a newer one is complete: one
whose run was killed before it could mark it as the latest. Checkpoints that were set aside when a
run went back to an earlier step (step_N.left-…) are listed separately, with what to do with them.

Examples:
  canzona ckpt ls runs/one
  canzona ckpt ls runs/one --json
)";

constexpr const char* kInspectExamples =
    R"(Shows how the checkpoint was saved, its files, and its tensors: names, types, global shapes, and
the number of boxes each is cut into. The default is the checkpoint that a run resumes from first.

Examples:
  canzona ckpt inspect runs/one
  canzona ckpt inspect runs/one --step 1000 --tensors 'model/*norm*'
  canzona ckpt inspect runs/one/ckpt/step_00001000 --json
)";

constexpr const char* kVerifyExamples =
    R"(Reads every byte and compares its SHA-256 with the one recorded on saving; checks that every
element of every tensor is present exactly once and that the files match the manifest. Without
--step, all checkpoints of a folder are verified. Suitable for cron: the exit status is 0 if all
are intact, 2 if there are none, 3 if a checkpoint is damaged, and every problem is reported.

Examples:
  canzona ckpt verify runs/one
  canzona ckpt verify runs/one --step 1000
)";

constexpr const char* kPruneExamples =
    R"(Keeps the newest K checkpoints that verify and removes older ones. All K are read and verified
first; if fewer than K verify, nothing is removed. A folder that a run is writing to is refused: a
run prunes its own checkpoints.

Examples:
  canzona ckpt prune runs/one --keep-last 2 --dry-run
  canzona ckpt prune runs/one --keep-last 2
)";

constexpr const char* kExportExamples =
    R"(Writes config.json and safetensors with the names of Hugging Face's transformers, so that
AutoModelForCausalLM.from_pretrained(FOLDER) loads them as Qwen3, Qwen3-MoE or, without norms of
queries and keys, Llama. Weights larger than --max-shard-size are written as several files with an
index. Every byte read is checked against its hash; FOLDER, which must be new or empty, appears only
when it is complete. The default is the checkpoint that a run resumes from first.

Examples:
  canzona ckpt export runs/one --hf out/one
  canzona ckpt export runs/one --step 1000 --hf out/one-1000 --dtype bf16
  canzona ckpt export runs/one/ckpt/step_00001000 --hf out/one --max-shard-size 2GB --json
)";

struct CkptFlags {
  std::string path;
  std::string pattern;
  std::optional<int64_t> step;
  std::string folder;  // the output
  std::string dtype = "fp32";
  std::string max_shard_size = "5GB";
  int64_t keep_last = 0;
  bool dry_run = false;
  bool json = false;
};

int ckpt_threads() {
  return static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
}

std::string without_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// A run's folder has its checkpoints in ckpt/.
std::string store_path(const std::string& path) {
  const std::string plain = without_slashes(path);
  std::error_code ignored;
  return std::filesystem::is_directory(plain + "/ckpt", ignored)
             ? plain + "/ckpt"
             : plain;
}

bool is_one_checkpoint(const std::string& path) {
  const std::string plain = without_slashes(path);
  std::error_code ignored;
  return step_of_name(plain.substr(plain.rfind('/') + 1)) ||
         std::filesystem::exists(cat(plain, "/", kManifestFile), ignored);
}

// The checkpoints that were meant, and the folder they are in.
struct Chosen {
  Folder folder;
  std::vector<ListedCheckpoint> list;
};

[[noreturn]] void refuse_empty(const Folder& folder) {
  throw UsageError(cat(quoted(folder.path(), 300),
                       " has no checkpoints; expected a run's folder, the "
                       "folder of its checkpoints, or one checkpoint"));
}

Chosen chosen_in(const std::string& path, std::optional<int64_t> step) {
  Folder folder = Folder::open(store_path(path));
  std::vector<ListedCheckpoint> list = list_checkpoints(folder);
  if (!step) return {std::move(folder), std::move(list)};
  std::vector<std::string> there;
  for (const ListedCheckpoint& c : list) {
    there.push_back(cat(c.step));
    if (c.step == *step) return {std::move(folder), {c}};
  }
  if (is_one_checkpoint(path))
    throw UsageError(
        cat("--step ", *step, ": ", quoted(path, 300),
            " is one checkpoint; leave --step out, or name the run's folder"));
  throw UsageError(cat("--step ", *step, ": ", quoted(folder.path(), 300),
                       there.empty() ? " has no checkpoints" : " has steps ",
                       join(there, ", ")));
}

CheckpointReader one_checkpoint(const std::string& path,
                                std::optional<int64_t> step) {
  if (!step && is_one_checkpoint(path)) return open_checkpoint(path);
  if (step)
    return open_checkpoint(store_path(path) + "/" +
                           chosen_in(path, step).list.front().name);
  const Folder folder = Folder::open(store_path(path));
  const std::vector<ListedCheckpoint> order = resume_order(folder);
  if (order.empty()) refuse_empty(folder);
  return CheckpointReader(folder.open_folder(order.front().name));
}

std::vector<CheckpointLine> lines_of(const CkptFlags& a, bool verify) {
  std::vector<CheckpointLine> lines;
  if (!a.step && is_one_checkpoint(a.path)) {
    const std::filesystem::path path = without_slashes(a.path);
    const std::string parent = path.parent_path().string();
    const std::string name = path.filename().string();
    const Folder folder = Folder::open(parent.empty() ? "." : parent);
    // Named explicitly, so absence is a mistake in the request.
    Folder::open(path.string());
    // "step_00000006.left-4711" was set aside.
    const std::string whole = name.substr(0, name.find('.'));
    return {checkpoint_line(folder, {name, step_of_name(whole).value_or(0)},
                            verify, ckpt_threads())};
  }
  const Chosen chosen = chosen_in(a.path, a.step);
  for (const ListedCheckpoint& c : chosen.list)
    lines.push_back(checkpoint_line(chosen.folder, c, verify, ckpt_threads()));
  return lines;
}

Outcome list_them(const CkptFlags& a, const Output& out) {
  const std::string path = store_path(a.path);
  CheckpointLines lines{lines_of(a, false)};
  if (!is_one_checkpoint(a.path)) {
    const Folder folder = Folder::open(path);
    for (const ListedCheckpoint& aside : list_set_aside(folder))
      lines.set_aside.push_back(
          checkpoint_line(folder, aside, false, ckpt_threads()));
  }
  out.result(ckpt_ls_view(path, lines), a.json);
  return Outcome::kDone;
}

Outcome inspect(const CkptFlags& a, const Output& out) {
  const CheckpointReader reader = one_checkpoint(a.path, a.step);
  out.result(ckpt_inspect_view(reader, a.pattern), a.json);
  return Outcome::kDone;
}

Outcome verify(const CkptFlags& a, const Output& out) {
  const std::vector<CheckpointLine> lines = lines_of(a, true);
  const std::string path = store_path(a.path);
  if (lines.empty()) refuse_empty(Folder::open(path));
  out.result(ckpt_verify_view(path, lines), a.json);
  size_t damaged = 0;
  for (const CheckpointLine& line : lines)
    damaged += line.problems.empty() ? 0 : 1;
  if (damaged > 0)
    throw CheckpointRefused(cat(damaged, " of ", lines.size(),
                                " checkpoints in ", path, " ",
                                damaged == 1 ? "is" : "are", " damaged"));
  return Outcome::kDone;
}

Outcome prune(const CkptFlags& a, const Output& out) {
  if (a.keep_last < 1)
    throw UsageError(cat("--keep-last ", a.keep_last, ": expected 1 or more"));
  const std::string path = store_path(a.path);
  Folder::open(path);  // must exist
  if (is_one_checkpoint(path))
    throw UsageError(cat("canzona ckpt prune: ", quoted(path, 300),
                         " is one checkpoint; name the folder it is in"));
  CheckpointStore store(path, cat("canzona ckpt prune, process ", ::getpid(),
                                  " on ", host_name()));
  const PruneReport report =
      a.dry_run ? store.prune_dry(a.keep_last) : store.prune(a.keep_last);
  out.result(ckpt_prune_view(report, a.dry_run), a.json);
  if (std::ssize(report.kept) < a.keep_last)
    out.note(cat("nothing was removed: ",
                 counted_text(std::ssize(report.kept), "checkpoint"),
                 " passed verification, fewer than --keep-last ", a.keep_last));
  return Outcome::kDone;
}

DType export_type(const std::string& dtype) {
  if (dtype == "fp32") return DType::kFp32;
  if (dtype == "bf16") return DType::kBf16;
  throw UsageError(cat("--dtype ", quoted(dtype), ": expected fp32 or bf16"));
}

Outcome export_weights(const CkptFlags& a, const Output& out) {
  const WeightFormat format{
      .type = export_type(a.dtype),
      .max_file_bytes = parse_bytes(a.max_shard_size, "--max-shard-size")};
  const CheckpointReader reader = one_checkpoint(a.path, a.step);
  const std::string tokenizer = tokenizer_beside(a.path);
  const HfExported done = export_hf(
      reader,
      {.folder = a.folder,
       .format = format,
       .tokenizer = tokenizer.empty() ? "" : read_tokenizer_file(tokenizer)});
  out.result(ckpt_export_view(reader.path(), a.folder, a.dtype, done), a.json);
  return Outcome::kDone;
}

using CkptRun = Outcome (*)(const CkptFlags&, const Output&);

struct CkptVerb {
  const char* name;
  const char* description;
  const char* footer;
  CkptRun run;
};

constexpr std::array<CkptVerb, 5> kCkptVerbs = {{
    {"ls", "list the checkpoints of a run", kLsExamples, list_them},
    {"inspect", "show what is in a checkpoint", kInspectExamples, inspect},
    {"verify", "check every byte of checkpoints", kVerifyExamples, verify},
    {"prune", "remove old checkpoints", kPruneExamples, prune},
    {"export", "export weights for Hugging Face's transformers",
     kExportExamples, export_weights},
}};

OptionRows options_of(const std::string& verb, CkptFlags& a) {
  OptionRows rows;
  const auto add = [&](std::initializer_list<const char*> verbs,
                       OptionRow row) {
    if (std::ranges::find(verbs, verb) != verbs.end())
      rows.push_back(std::move(row));
  };
  rows.push_back(
      argument("PATH", a.path, "a run, its ckpt folder or a checkpoint")
          .required());
  add({"inspect", "verify", "export"},
      option("--step", a.step, "N", "the checkpoint of this step"));
  add({"inspect"},
      option("--tensors", a.pattern, "PATTERN",
             "only tensors whose names match; '*' matches anything"));
  add({"prune"},
      option("--keep-last", a.keep_last, "K", "number of checkpoints to keep")
          .required());
  add({"prune"}, flag("--dry-run", a.dry_run,
                      "show what would be removed, but remove nothing"));
  add({"export"},
      option("--hf", a.folder, "FOLDER", "the new folder").required());
  add({"export"}, option("--dtype", a.dtype, "fp32|bf16",
                         "fp32 or bf16, rounded to nearest")
                      .offering({"fp32", "bf16"}));
  add({"export"}, option("--max-shard-size", a.max_shard_size, "BYTES",
                         "largest size of a file, such as 500MB; 0: one file"));
  rows.push_back(json_flag(a.json));
  return rows;
}

Verb add_one(CLI::App& ckpt, const CkptVerb& verb) {
  auto flags = std::make_shared<CkptFlags>();
  return add_verb(ckpt, {.name = verb.name,
                         .description = verb.description,
                         .options = options_of(verb.name, *flags),
                         .footer = verb.footer,
                         .run = [flags, run = verb.run](const Output& out) {
                           return run(*flags, out);
                         }});
}

}  // namespace

Verb add_ckpt(CLI::App& root) {
  VerbDeclaration ckpt{
      .name = "ckpt",
      .description = "list, inspect, verify, prune and export checkpoints",
      .footer = kCkptExamples,
      .run = [](const Output&) -> Outcome {
        throw InternalError("no verb of ckpt was parsed");
      }};
  for (const CkptVerb& verb : kCkptVerbs)
    ckpt.below.push_back([&verb](CLI::App& app) { return add_one(app, verb); });
  Verb added = add_verb(root, ckpt);
  added.app->require_subcommand(1);
  return added;
}

}  // namespace canzona::cli
