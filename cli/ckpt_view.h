// Views of checkpoints, as text and as JSON. Names come from files, so they are
// made safe for the terminal.
#pragma once

#include <string>
#include <vector>

#include "canzona/checkpoint/compare.h"
#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/report/terminal.h"
#include "canzona/train/model_source.h"

namespace canzona::cli {

// A checkpoint, as far as it could be read.
struct CheckpointLine {
  std::string name;
  int64_t step = 0;
  bool is_latest = false;
  int64_t world = 0;
  int64_t num_tensors = 0;
  int64_t num_files = 0;
  int64_t bytes = 0;
  std::vector<std::string> problems;
};

// Describes a checkpoint without reading data or, with `verify`, after reading
// all of it.
CheckpointLine checkpoint_line(const Folder& store,
                               const ListedCheckpoint& listed, bool verify,
                               int threads);

// The checkpoints of a folder, and those in it that were set aside.
struct CheckpointLines {
  std::vector<CheckpointLine> checkpoints;
  std::vector<CheckpointLine> set_aside = {};
};

std::string ckpt_ls_text(const std::string& path, const CheckpointLines& lines,
                         const Ink& ink);
std::string ckpt_lines_json(const std::string& path,
                            const CheckpointLines& lines);
std::string ckpt_verify_text(const std::vector<CheckpointLine>& lines,
                             const Ink& ink);

// Shows tensors whose names match `pattern`.
std::string ckpt_inspect_text(const CheckpointReader& reader,
                              const std::string& pattern, const Ink& ink);
std::string ckpt_inspect_json(const CheckpointReader& reader,
                              const std::string& pattern);

std::string ckpt_diff_text(const CheckpointDifference& difference,
                           const Ink& ink);
std::string ckpt_diff_json(const CheckpointDifference& difference);

std::string ckpt_prune_text(const PruneReport& report, bool dry_run,
                            const Ink& ink);
std::string ckpt_prune_json(const PruneReport& report, bool dry_run);

// `path` is the checkpoint, `folder` where its weights are now.
std::string ckpt_export_text(const std::string& path, const std::string& folder,
                             const std::string& dtype, const HfExported& done);
std::string ckpt_export_json(const std::string& path, const std::string& folder,
                             const std::string& dtype, const HfExported& done);
std::string ckpt_import_text(const std::string& folder, const HfImported& made);
std::string ckpt_import_json(const std::string& folder, const HfImported& made);

}  // namespace canzona::cli
