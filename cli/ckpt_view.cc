#include "cli/ckpt_view.h"

#include <algorithm>

#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/shapes/records.h"

namespace canzona::cli {
namespace {

constexpr size_t kShownRows = 40;

std::string damaged_text() { return toned(Tone::kPoor, "damaged"); }

std::string problems_text(const std::vector<CheckpointLine>& lines) {
  constexpr size_t kShown = 10;
  std::string out;
  for (const CheckpointLine& line : lines) {
    for (size_t i = 0; i < std::min(line.problems.size(), kShown); ++i)
      out +=
          cat("  ", line.name, ": ", printable(line.problems[i], 1000), "\n");
    if (line.problems.size() > kShown)
      out += cat("  ", line.name, ": … and ", line.problems.size() - kShown,
                 " more\n");
  }
  return out;
}

std::vector<const SavedTensor*> matching(const CheckpointReader& reader,
                                         const std::string& pattern) {
  std::vector<const SavedTensor*> out;
  for (const SavedTensor& saved : reader.manifest().tensors)
    if (pattern.empty() || matches_pattern(saved.tensor.name, pattern))
      out.push_back(&saved);
  return out;
}

int64_t tensor_bytes(const LogicalTensor& tensor) {
  return bytes_of(tensor, whole_box(tensor.shape));
}

}  // namespace

CheckpointLine checkpoint_line(const Folder& store,
                               const ListedCheckpoint& listed, bool verify,
                               int threads) {
  CheckpointLine line{listed.name, listed.step, listed.is_latest, 0, 0, 0,
                      0,           {}};
  try {
    const CheckpointReader reader(store.open_folder(listed.name));
    const Manifest& manifest = reader.manifest();
    line.world = manifest.world;
    line.num_tensors = std::ssize(manifest.tensors);
    line.num_files = std::ssize(manifest.files);
    line.bytes = manifest.file_bytes();
    line.problems = verify ? reader.verify(threads) : reader.check_files();
  } catch (const DataLost& error) {
    line.problems = {error.what()};
  }
  return line;
}

namespace {

Listing listing_of(const std::vector<CheckpointLine>& lines, bool is_aside) {
  Listing out;
  for (const CheckpointLine& line : lines) {
    const bool is_sound = line.problems.empty();
    Row& row = out.add({{"step", ">step", line.step},
                        {"world", ">ranks", line.world},
                        {"tensors", ">tensors", line.num_tensors},
                        {"files", ">files", line.num_files},
                        {"bytes", ">size", as_bytes(line.bytes)}});
    row.add({"sound", "<", is_sound,
             cat(is_sound ? toned(Tone::kGood, "complete") : damaged_text(),
                 line.is_latest ? ", latest" : "")});
    row.add({"name", is_aside ? "<name" : "", line.name});
    row.set("latest", line.is_latest).set("problems", line.problems);
  }
  return out;
}

}  // namespace

Document ckpt_ls_view(const std::string& path, const CheckpointLines& lines) {
  Document out;
  const std::string shown = printable(path);
  out.set("folder", path);
  out.text(lines.checkpoints.empty() ? cat("no checkpoints in ", shown, "\n")
                                     : cat(shown, "\n"));
  out.table("checkpoints", listing_of(lines.checkpoints, false));
  out.text(problems_text(lines.checkpoints));
  if (!lines.set_aside.empty())
    out.text("set aside, no longer part of the run:\n");
  out.table("set_aside", listing_of(lines.set_aside, true));
  out.text(problems_text(lines.set_aside));
  if (!lines.set_aside.empty())
    out.text(cat("  canzona train --resume ", shown,
                 "/NAME --run NEW_FOLDER resumes from one; canzona ckpt prune ",
                 shown, " --keep-last K removes them\n"));
  return out;
}

Document ckpt_verify_view(const std::string& path,
                          const std::vector<CheckpointLine>& lines) {
  Document out;
  for (const CheckpointLine& line : lines)
    out.text(cat(line.name, ": ",
                 line.problems.empty()
                     ? cat(toned(Tone::kGood, "verified"), ", ",
                           counted_text(line.num_files, "file"), ", ",
                           human_bytes(line.bytes))
                     : damaged_text(),
                 "\n", problems_text({line})));
  out.set("folder", path).set("set_aside", std::vector<Value>());
  return out.set("checkpoints", listing_of(lines, false).value());
}

Document ckpt_inspect_view(const CheckpointReader& reader,
                           const std::string& pattern) {
  const Manifest& manifest = reader.manifest();
  Document out;
  out.heading(
      printable(reader.path()),
      cat(": step ", manifest.step, ", saved by ",
          counted(manifest.world, "rank"), ", ",
          human_bytes(manifest.file_bytes()), ", format ", manifest.version));
  out.line(cat("plan ", manifest.plan_digest.empty() ? "not recorded"
                                                     : manifest.plan_digest));
  out.set("folder", reader.path()).set("step", manifest.step);
  out.set("world", manifest.world).set("bytes", manifest.file_bytes());
  out.set("format_version", manifest.version);
  out.set("min_reader_version", manifest.min_reader_version);
  out.set("plan_digest", manifest.plan_digest);
  out.set("manifest_sha256", reader.manifest_hash());
  Listing files(kShownRows);
  for (const FileRecord& file : manifest.files)
    files
        .add({{"name", "<file", file.name},
              {"bytes", ">size", as_bytes(file.bytes)},
              {"chunks", ">chunks", file.chunks.size()}})
        .set("sha256", file.sha256);
  Listing tensors(kShownRows);
  for (const SavedTensor* saved : matching(reader, pattern)) {
    const LogicalTensor& tensor = saved->tensor;
    std::vector<Value> boxes;
    for (const SavedBox& box : saved->boxes)
      boxes.push_back({{"file", manifest.files[index(box.file)].name},
                       {"offset", box.offset},
                       {"first", box.box.first},
                       {"count", box.box.count}});
    tensors.add({{"name", "~tensor", tensor.name},
                 {"dtype", "<type", name_in_file(tensor.type)},
                 {"shape", "<shape", tensor.shape, shape_text(tensor.shape)},
                 {"bytes", ">size", as_bytes(tensor_bytes(tensor))},
                 {"boxes", ">boxes", boxes, cat(boxes.size())}});
  }
  return out.table("files", files)
      .table("tensors", tensors, "no tensor matches");
}

Document ckpt_prune_view(const PruneReport& report, bool dry_run) {
  Document out;
  const auto list = [&](const char* key, const std::vector<std::string>& names,
                        const std::string& fate) {
    for (const std::string& name : names) out.text(cat(name, ": ", fate, "\n"));
    out.set(key, names);
  };
  list("kept", report.kept, toned(Tone::kGood, "kept") + ", verified");
  list("damaged", report.damaged, damaged_text() + ", kept");
  list("removed", report.removed, dry_run ? "would be removed" : "removed");
  if (report.kept.empty() && report.damaged.empty() && report.removed.empty())
    out.text("no checkpoints\n");
  return out.set("dry_run", dry_run);
}

Document ckpt_export_view(const std::string& path, const std::string& folder,
                          const std::string& dtype, const HfExported& done) {
  Listing files;
  for (const HfFile& file : done.files)
    files.add()
        .set("name", file.name)
        .set("tensors", std::ssize(file.tensors))
        .set("bytes", file.data_bytes);
  Document out;
  out.text(cat(printable(path, 300), ", step ", done.step, ": ",
               human_count(done.parameters), " parameters of ", done.model_type,
               " in ", dtype, ", ", human_bytes(done.bytes), " in ",
               counted(std::ssize(done.files), "file"), ": ",
               printable(folder, 300), "\n"));
  out.set("checkpoint", path).set("step", done.step).set("folder", folder);
  out.set("model_type", done.model_type).set("dtype", dtype);
  out.set("parameters", done.parameters).set("bytes", done.bytes);
  return out.table("files", files);
}

}  // namespace canzona::cli
