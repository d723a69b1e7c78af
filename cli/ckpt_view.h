// Views of checkpoints. Names come from files, so they are
// made safe for the terminal.
#pragma once

#include <string>
#include <vector>

#include "canzona/checkpoint/reader.h"
#include "canzona/checkpoint/store.h"
#include "canzona/report/document.h"
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

Document ckpt_ls_view(const std::string& path, const CheckpointLines& lines);
Document ckpt_verify_view(const std::string& path,
                          const std::vector<CheckpointLine>& lines);

// Shows tensors whose names match `pattern`.
Document ckpt_inspect_view(const CheckpointReader& reader,
                           const std::string& pattern);

Document ckpt_prune_view(const PruneReport& report, bool dry_run);

// `path` is the checkpoint, `folder` where its weights are now.
Document ckpt_export_view(const std::string& path, const std::string& folder,
                          const std::string& dtype, const HfExported& done);

}  // namespace canzona::cli
