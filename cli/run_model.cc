#include "cli/run_model.h"

#include <filesystem>

#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/store.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/resume.h"

namespace canzona::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxSummaryBytes = 16 << 20;

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string trimmed(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

// `store` is "" if there are no checkpoints.
CheckpointReader open_step(const std::string& path, const std::string& store,
                           int64_t step) {
  std::vector<std::string> there;
  if (!store.empty())
    for (const ListedCheckpoint& c : list_checkpoints(Folder::open(store))) {
      if (c.step == step) return open_checkpoint(cat(store, "/", c.name));
      there.push_back(cat(c.step));
    }
  throw UsageError(cat("--step ", step, ": ", quoted(path, 300),
                       there.empty() ? " has no checkpoints" : " has steps ",
                       join(there, ", ")));
}

void take_checkpoint(const CheckpointReader& reader, RunModel& model) {
  model.found = find_model(reader.path());
  model.step = reader.manifest().step;
  if (!has_run_state(reader)) return;
  model.config = saved_config(reader);
  model.data_digest =
      read_data_identity(reader.side_file(kDataFile), reader.path()).digest;
}

// Reads a run's final weights with its own configuration, because some models
// have no config.json.
void take_run(const std::string& path, RunModel& model) {
  const std::string summary = path + "/summary.json";
  const std::string text =
      read_file(summary, kMaxSummaryBytes, "the summary of a run");
  model.config = make_config(json_settings(text, summary));
  model.data_digest = read_summary(text, summary).data_digest;
  model.found = {.path = path,
                 .is_checkpoint = false,
                 .settings = architecture_settings(*model.config, summary)};
}

void find_weights(const RunModelRequest& request, RunModel& model) {
  const std::string& path = model.path;
  if (!is_folder(path))
    throw UsageError(
        cat("--run ", quoted(path, 300),
            is_there(path) ? ": it is not a folder" : ": no such folder",
            "; expected a run, a checkpoint or a Hugging Face folder"));
  if (request.step && !is_there(cat(path, "/", kManifestFile)))
    return take_checkpoint(
        open_step(path, checkpoint_store_in(path), *request.step), model);
  const ChosenWeights chosen = choose_weights(path);
  model.notes = chosen.notes;
  if (chosen.is_checkpoint) {
    take_checkpoint(open_checkpoint(chosen.path), model);
    if (request.step && model.step != request.step)
      throw UsageError(cat("--step ", *request.step, ": --run ",
                           quoted(path, 300), " is the checkpoint of step ",
                           *model.step));
    return;
  }
  const bool has_weights = HfFolder::has_weights(path);
  const bool is_run = is_there(path + "/summary.json");
  if (is_run && has_weights) return take_run(path, model);
  if (has_weights) {
    model.found = find_model(path);
    return;
  }
  throw UsageError(cat(
      "--run ", quoted(path, 300),
      is_run
          ? ": the run has no weights yet: there is no checkpoint in ckpt/ and "
            "no model.safetensors; train with --save-every, or to the end"
          : ": the folder has no weights; expected ckpt/ with checkpoints, "
            "model.safetensors or model.safetensors.index.json"));
}

std::string tokenizer_of(const RunModelRequest& request,
                         const RunModel& model) {
  if (!request.tokenizer.empty()) return request.tokenizer;
  if (std::string beside = tokenizer_beside(model.path); !beside.empty())
    return beside;
  return model.config ? model.config->data.tokenizer : "";
}

void find_tokenizer(const RunModelRequest& request, RunModel& model) {
  constexpr int64_t kBytes = 256;
  const std::string path = tokenizer_of(request, model);
  if (!path.empty()) {
    model.tokenizer = load_tokenizer(path);
    if (model.tokenizer->vocab() > model.vocab)
      throw UsageError(
          cat(quoted(path, 300), ": the tokenizer has ",
              model.tokenizer->vocab(), " tokens, but the model in ",
              quoted(model.path, 300), " has ", model.vocab,
              "; expected the tokenizer that the model was trained with"));
  } else if (model.vocab > kBytes) {
    throw UsageError(cat(
        "--run ", quoted(model.path, 300),
        ": the folder has no tokenizer.json, and a vocabulary of ", model.vocab,
        " tokens is not one of bytes; give the tokenizer with --tokenizer "
        "FILE"));
  }
}

}  // namespace

OptionRows run_model_options(RunModelRequest& request) {
  return {option("--run", request.path, "DIR",
                 "a run, one of its checkpoints, or a Hugging Face folder")
              .required(),
          option("--step", request.step, "N", "the checkpoint of this step")
              .by_default("the newest intact one"),
          option("--tokenizer", request.tokenizer, "FILE", "tokenizer.json")
              .by_default("the one in the folder; without one, bytes")};
}

std::string RunModel::name() const {
  return step ? cat(path, ", step ", *step) : path;
}

Document run_model_members(const RunModel& model) {
  Document out;
  out.set("run", model.path).set("weights", model.found.path);
  return model.step ? out.set("step", *model.step) : out;
}

std::string tokenizer_path(const std::string& folder) {
  std::string path = trimmed(folder);
  if (step_of_name(fs::path(path).filename().string())) path = parent_of(path);
  if (fs::path(path).filename() == "ckpt") path = parent_of(path);
  return path + "/tokenizer.json";
}

std::string tokenizer_beside(const std::string& folder) {
  const std::string file = tokenizer_path(folder);
  return is_there(file) ? file : "";
}

RunModel open_run_model(const RunModelRequest& request) {
  RunModel model;
  model.path = trimmed(request.path);
  find_weights(request, model);
  const TrainConfig config =
      model.config ? *model.config : make_config(model.found.settings);
  model.vocab = config.model.vocab;
  model.context =
      model.config ? context_length_of(config) : config.model.context;
  if (model.context == 0)
    throw UsageError(cat(quoted(model.found.path + "/config.json", 300),
                         ": \"max_position_embeddings\" is missing; expected "
                         "the model's longest context in tokens"));
  find_tokenizer(request, model);
  return model;
}

}  // namespace canzona::cli
