#include "cli/ckpt_view.h"

#include <algorithm>
#include <cmath>

#include "canzona/base/json_writer.h"
#include "canzona/base/text.h"
#include "canzona/report/shown_plan.h"
#include "canzona/report/terminal.h"
#include "canzona/shapes/records.h"

namespace canzona::cli {
namespace {

constexpr size_t kShownRows = 40;

std::string state_text(const CheckpointLine& line, const Ink& ink) {
  return line.problems.empty() ? ink(Tone::kGood, "complete")
                               : ink(Tone::kPoor, "damaged");
}

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

std::string more_text(size_t count, const char* what) {
  return count <= kShownRows ? ""
                             : cat("  … and ", count - kShownRows, " more ",
                                   what, "; --json lists all\n");
}

std::string names_text(const std::vector<std::string>& names,
                       const char* what) {
  if (names.empty()) return "";
  std::string out = cat(names.size(), " ", what, "\n");
  for (size_t i = 0; i < std::min(names.size(), kShownRows); ++i)
    out += cat("  ", printable(names[i]), "\n");
  return out + more_text(names.size(), "tensors");
}

std::string difference_text(double largest) {
  return std::isfinite(largest) ? cat(largest) : "not finite";
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

std::string lines_table(const std::vector<CheckpointLine>& lines,
                        const Ink& ink, bool is_aside) {
  Table table(">>>>><<");
  table.header({"step", "ranks", "tensors", "files", "size", "",
                is_aside ? "name" : ""});
  for (const CheckpointLine& line : lines)
    table.row({cat(line.step), cat(line.world), cat(line.num_tensors),
               cat(line.num_files), human_bytes(line.bytes),
               state_text(line, ink) + (line.is_latest ? ", latest" : ""),
               is_aside ? printable(line.name) : ""});
  return table.text(ink) + problems_text(lines);
}

std::string aside_text(const std::string& path,
                       const std::vector<CheckpointLine>& aside,
                       const Ink& ink) {
  if (aside.empty()) return "";
  return cat("set aside, no longer part of the run:\n",
             lines_table(aside, ink, true), "  canzona train --resume ",
             printable(path), "/NAME --run NEW_FOLDER resumes from one; ",
             "canzona ckpt prune ", printable(path),
             " --keep-last K removes them\n");
}

void write_lines(JsonWriter& out, const char* member,
                 const std::vector<CheckpointLine>& lines) {
  out.member(member).begin_array();
  for (const CheckpointLine& line : lines) {
    out.begin_object()
        .field("name", line.name)
        .field("step", line.step)
        .field("latest", line.is_latest)
        .field("world", line.world)
        .field("tensors", line.num_tensors)
        .field("files", line.num_files)
        .field("bytes", line.bytes)
        .field("sound", line.problems.empty());
    out.member("problems").values(line.problems).end_object();
  }
  out.end_array();
}

}  // namespace

std::string ckpt_ls_text(const std::string& path, const CheckpointLines& lines,
                         const Ink& ink) {
  const std::string whole =
      lines.checkpoints.empty()
          ? cat("no checkpoints in ", printable(path), "\n")
          : cat(printable(path), "\n",
                lines_table(lines.checkpoints, ink, false));
  return whole + aside_text(path, lines.set_aside, ink);
}

std::string ckpt_lines_json(const std::string& path,
                            const CheckpointLines& lines) {
  JsonWriter out(2);
  out.begin_object().field("folder", path);
  write_lines(out, "checkpoints", lines.checkpoints);
  write_lines(out, "set_aside", lines.set_aside);
  return out.end_object().take() + "\n";
}

std::string ckpt_verify_text(const std::vector<CheckpointLine>& lines,
                             const Ink& ink) {
  std::string out;
  for (const CheckpointLine& line : lines)
    out += cat(line.name, ": ",
               line.problems.empty() ? cat(ink(Tone::kGood, "verified"), ", ",
                                           counted_text(line.num_files, "file"),
                                           ", ", human_bytes(line.bytes))
                                     : ink(Tone::kPoor, "damaged"),
               "\n", problems_text({line}));
  return out;
}

std::string ckpt_inspect_text(const CheckpointReader& reader,
                              const std::string& pattern, const Ink& ink) {
  const Manifest& manifest = reader.manifest();
  std::string out =
      cat(ink(Tone::kBold, printable(reader.path())), ": step ", manifest.step,
          ", saved by ", counted(manifest.world, "rank"), ", ",
          human_bytes(manifest.file_bytes()), ", format ", manifest.version,
          "\n  plan ",
          manifest.plan_digest.empty() ? "not recorded" : manifest.plan_digest,
          "\n");
  Table files("<>>");
  files.header({"file", "size", "chunks"});
  for (size_t i = 0; i < std::min(manifest.files.size(), kShownRows); ++i)
    files.row({manifest.files[i].name, human_bytes(manifest.files[i].bytes),
               cat(manifest.files[i].chunks.size())});
  out += files.text(ink) + more_text(manifest.files.size(), "files");
  const std::vector<const SavedTensor*> tensors = matching(reader, pattern);
  Table table("~<<>>");
  table.header({"tensor", "type", "shape", "size", "boxes"});
  for (size_t i = 0; i < std::min(tensors.size(), kShownRows); ++i) {
    const LogicalTensor& tensor = tensors[i]->tensor;
    table.row({printable(tensor.name), std::string(name_in_file(tensor.type)),
               shape_text(tensor.shape), human_bytes(tensor_bytes(tensor)),
               cat(tensors[i]->boxes.size())});
  }
  return out + (tensors.empty() ? "  no tensor matches\n" : table.text(ink)) +
         more_text(tensors.size(), "tensors");
}

std::string ckpt_inspect_json(const CheckpointReader& reader,
                              const std::string& pattern) {
  const Manifest& manifest = reader.manifest();
  JsonWriter out(2);
  out.begin_object()
      .field("folder", reader.path())
      .field("step", manifest.step)
      .field("world", manifest.world)
      .field("bytes", manifest.file_bytes())
      .field("format_version", manifest.version)
      .field("min_reader_version", manifest.min_reader_version)
      .field("plan_digest", manifest.plan_digest)
      .field("manifest_sha256", reader.manifest_hash());
  out.member("files").begin_array();
  for (const FileRecord& file : manifest.files)
    out.begin_object()
        .field("name", file.name)
        .field("bytes", file.bytes)
        .field("sha256", file.sha256)
        .field("chunks", file.chunks.size())
        .end_object();
  out.end_array().member("tensors").begin_array();
  for (const SavedTensor* saved : matching(reader, pattern)) {
    out.begin_object().field("name", saved->tensor.name);
    out.field("dtype", name_in_file(saved->tensor.type));
    out.member("shape").values(saved->tensor.shape);
    out.field("bytes", tensor_bytes(saved->tensor));
    out.member("boxes").begin_array();
    for (const SavedBox& box : saved->boxes) {
      out.begin_object();
      out.field("file", manifest.files[static_cast<size_t>(box.file)].name);
      out.field("offset", box.offset).member("first").values(box.box.first);
      out.member("count").values(box.box.count).end_object();
    }
    out.end_array().end_object();
  }
  return out.end_array().end_object().take() + "\n";
}

std::string ckpt_diff_text(const CheckpointDifference& difference,
                           const Ink& ink) {
  if (difference.equal())
    return cat(ink(Tone::kGood, "equal"), ": ",
               counted_text(difference.num_equal, "tensor"), ", bit by bit\n");
  std::string out =
      cat(ink(Tone::kPoor, "different"), ": ", difference.num_equal,
          " tensors are equal, ", difference.different.size(), " differ\n");
  Table table("~>><");
  table.header({"tensor", "differ", "of", "largest difference"});
  for (size_t i = 0; i < std::min(difference.different.size(), kShownRows);
       ++i) {
    const TensorDifference& d = difference.different[i];
    table.row({printable(d.name), d.what.empty() ? cat(d.different) : "",
               cat(d.elements),
               d.what.empty() ? difference_text(d.largest) : d.what});
  }
  if (!table.empty()) out += table.text(ink);
  return out + more_text(difference.different.size(), "tensors") +
         names_text(difference.only_first, "only in the first:") +
         names_text(difference.only_second, "only in the second:");
}

std::string ckpt_diff_json(const CheckpointDifference& difference) {
  JsonWriter out(2);
  out.begin_object()
      .field("equal", difference.equal())
      .field("num_equal", difference.num_equal);
  out.member("only_first").values(difference.only_first);
  out.member("only_second").values(difference.only_second);
  out.member("different").begin_array();
  for (const TensorDifference& d : difference.different)
    out.begin_object()
        .field("name", d.name)
        .field("what", d.what)
        .field("elements", d.elements)
        .field("different", d.different)
        .field("largest", d.largest)
        .end_object();
  return out.end_array().end_object().take() + "\n";
}

std::string ckpt_prune_text(const PruneReport& report, bool dry_run,
                            const Ink& ink) {
  std::string out;
  for (const std::string& name : report.kept)
    out += cat(name, ": ", ink(Tone::kGood, "kept"), ", verified\n");
  for (const std::string& name : report.damaged)
    out += cat(name, ": ", ink(Tone::kPoor, "damaged"), ", kept\n");
  for (const std::string& name : report.removed)
    out += cat(name, dry_run ? ": would be removed\n" : ": removed\n");
  return out.empty() ? "no checkpoints\n" : out;
}

std::string ckpt_prune_json(const PruneReport& report, bool dry_run) {
  JsonWriter out(2);
  out.begin_object().field("dry_run", dry_run);
  out.member("kept").values(report.kept);
  out.member("damaged").values(report.damaged);
  out.member("removed").values(report.removed);
  return out.end_object().take() + "\n";
}

std::string ckpt_export_text(const std::string& path, const std::string& folder,
                             const std::string& dtype, const HfExported& done) {
  return cat(printable(path, 300), ", step ", done.step, ": ",
             human_count(done.parameters), " parameters of ", done.model_type,
             " in ", dtype, ", ", human_bytes(done.bytes), " in ",
             counted(std::ssize(done.files), "file"), ": ",
             printable(folder, 300), "\n");
}

std::string ckpt_export_json(const std::string& path, const std::string& folder,
                             const std::string& dtype, const HfExported& done) {
  JsonWriter out(2);
  out.begin_object();
  out.field("checkpoint", path).field("step", done.step);
  out.field("folder", folder).field("model_type", done.model_type);
  out.field("dtype", dtype).field("parameters", done.parameters);
  out.field("bytes", done.bytes).member("files").begin_array();
  for (const HfFile& file : done.files)
    out.begin_object()
        .field("name", file.name)
        .field("tensors", std::ssize(file.tensors))
        .field("bytes", file.data_bytes)
        .end_object();
  return out.end_array().end_object().take() + "\n";
}

std::string ckpt_import_text(const std::string& folder,
                             const HfImported& made) {
  return cat(
      printable(folder, 300),
      made.source == folder ? "" : cat(" (", printable(made.source, 300), ")"),
      ": ", human_count(made.parameters), " parameters in ",
      counted_text(made.tensors, "tensor"), ", ", human_bytes(made.bytes), ": ",
      printable(made.path, 300), "\n");
}

std::string ckpt_import_json(const std::string& folder,
                             const HfImported& made) {
  JsonWriter out(2);
  out.begin_object();
  out.field("folder", folder).field("source", made.source);
  out.field("checkpoint", made.path).field("step", 0);
  out.field("tensors", made.tensors).field("parameters", made.parameters);
  return out.field("bytes", made.bytes).end_object().take() + "\n";
}

}  // namespace canzona::cli
