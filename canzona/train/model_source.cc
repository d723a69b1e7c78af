#include "canzona/train/model_source.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <thread>

#include "canzona/base/check.h"
#include "canzona/base/digest.h"
#include "canzona/base/error.h"
#include "canzona/base/files.h"
#include "canzona/base/text.h"
#include "canzona/checkpoint/file_system.h"
#include "canzona/checkpoint/store.h"
#include "canzona/plan/schedule/rank_layout.h"
#include "canzona/trace/run_summary.h"
#include "canzona/train/model_settings.h"
#include "canzona/train/resume.h"

namespace canzona::train {
namespace {

// Layers whose activations are not needed again share their memory.
DecoderConfig forward_alone(DecoderConfig config) {
  config.recompute = Recompute::kLayer;
  return config;
}

}  // namespace

LocalDecoder::Held::Held(const Model& shapes, const TensorSource& source) {
  tensors_.reserve(shapes.tensors.size());
  for (const Tensor& tensor : shapes.tensors) {
    tensors_.emplace_back(index(tensor.elements()));
    source(tensor, tensors_.back());
  }
}

const float* LocalDecoder::Held::parameter(int32_t tensor) {
  return whole(tensor).data();
}

float* LocalDecoder::Held::gradient(int32_t tensor) {
  CANZONA_CHECK(false, "tensor ", tensor, " has no gradient here");
  return nullptr;
}

std::span<const float> LocalDecoder::Held::whole(int32_t tensor) const {
  return tensors_.at(index(tensor));
}

LocalDecoder::LocalDecoder(const DecoderConfig& config, const std::string& name,
                           const TensorSource& source)
    : config_(forward_alone(config)),
      shapes_(decoder_shapes(config_, name)),
      engine_(make_cpu_engine()),
      weights_(shapes_, source),
      decoder_(config_, shapes_, {.num_layers = config_.architecture.layers},
               *engine_, weights_),
      sequences_(index(config_.micro_batch * (config_.length + 1))) {}

std::span<const float> LocalDecoder::weights(int32_t tensor) const {
  return weights_.whole(tensor);
}

void LocalDecoder::check_tokens(std::span<const int32_t> tokens,
                                int64_t count) const {
  CANZONA_CHECK_EQ(tokens.size(), count, "tokens of a micro-batch");
  const int64_t vocab = config_.architecture.vocab;
  for (const int32_t token : tokens)
    if (token < 0 || token >= vocab)
      throw UsageError(cat("model ", quoted(shapes_.name), ": token ", token,
                           " is not in the vocabulary of ", vocab));
}

double LocalDecoder::loss(std::span<const int32_t> sequences, int64_t counted) {
  check_tokens(sequences, config_.micro_batch * (config_.length + 1));
  return decoder_.evaluate(sequences, nullptr, nullptr, counted);
}

void LocalDecoder::logits(std::span<const int32_t> tokens,
                          const UseLogits<float>& use) {
  const int64_t length = config_.length;
  check_tokens(tokens, config_.tokens());
  for (int64_t i = 0; i < config_.micro_batch; ++i)
    std::copy_n(tokens.begin() + i * length, length,
                sequences_.begin() + i * (length + 1));
  decoder_.logits(sequences_, use);
}

double mean_loss(LocalDecoder& model, int64_t count, const ReadSequence& read,
                 const std::function<void(int64_t)>& done) {
  CANZONA_CHECK(count > 0);
  const int64_t at_once = model.config().micro_batch;
  const int64_t length = model.config().length + 1;
  std::vector<int32_t> tokens(index(at_once * length));
  double sum = 0;
  for (int64_t first = 0; first < count; first += at_once) {
    // Sequences that pad the last micro-batch do not count.
    for (int64_t i = 0; i < at_once; ++i)
      read((first + i) % count,
           std::span(tokens).subspan(index(i * length), index(length)));
    const int64_t counted = std::min(at_once, count - first);
    sum += model.loss(tokens, counted) * static_cast<double>(counted);
    done(first + counted);
  }
  return sum / static_cast<double>(count);
}

namespace {

namespace fs = std::filesystem;

FoundModel model_of_checkpoint(const std::string& path) {
  return {.path = path,
          .is_checkpoint = true,
          .settings = architecture_settings(saved_config(open_checkpoint(path)),
                                            cat(path, "/config.json"))};
}

FoundModel model_of_hf_folder(const std::string& path) {
  const HfFolder folder = HfFolder::open(path);
  return {.path = path,
          .is_checkpoint = false,
          .settings = config_json_settings(folder.config_json(),
                                           cat(folder.path(), "/", kHfConfig))};
}

}  // namespace

TrainConfig saved_config(const CheckpointReader& reader) {
  return make_config(json_settings(reader.side_file("config.json"),
                                   cat(reader.path(), "/config.json")));
}

bool has_run_state(const CheckpointReader& reader) {
  return std::ranges::find(reader.manifest().files, kRunFile,
                           &FileRecord::name) != reader.manifest().files.end();
}

std::string checkpoint_store_in(const std::string& path) {
  for (const std::string& store : {path + "/ckpt", path})
    if (is_folder(store) && !list_checkpoints(Folder::open(store)).empty())
      return store;
  return "";
}

namespace {

// Returns the summary of a run that has left final weights.
std::optional<RunSummary> summary_of_weights(const std::string& run) {
  const std::string file = run + "/summary.json";
  constexpr int64_t kMostBytes = 256 << 20;
  if (!HfFolder::has_weights(run) || !is_there(file)) return {};
  try {
    return read_summary(read_file(file, kMostBytes, "the run's summary"), file);
  } catch (const Error&) {
    return {};  // it does not say which weights these are
  }
}

std::string sha256_of_file(const std::string& path) {
  constexpr int64_t kPiece = 1 << 20;
  const FileReader file(path, "the run's weights");
  std::vector<char> piece(static_cast<size_t>(std::min(kPiece, file.size())));
  Sha256 hash;
  for (int64_t at = 0; at < file.size(); at += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, file.size() - at));
    const std::span<char> part = std::span(piece).first(count);
    file.read(at, std::as_writable_bytes(part));
    hash.add({part.data(), part.size()});
  }
  return hash.hex();
}

// Returns what is wrong with a run's final weights, or "" if nothing is known
// to be. Old summaries do not have the hash.
std::string fault_of_weights(const std::string& run,
                             const RunSummary& summary) {
  if (!summary.has_ended() || summary.weights_sha256.empty()) return "";
  const std::string file = cat(run, "/", kHfWeights);
  std::string found;
  try {
    found = sha256_of_file(file);
  } catch (const Error& error) {
    return error.what();
  }
  if (found == summary.weights_sha256) return "";
  return cat(quoted(file, 300), " is damaged: its SHA-256 is ", found,
             ", but the run recorded ", printable(summary.weights_sha256),
             " in summary.json; if the weights were changed on purpose, remove "
             "that file");
}

// Returns what is wrong with a checkpoint, or "".
std::string fault_of_checkpoint(const std::string& path, WeightCheck check) {
  const int threads =
      static_cast<int>(std::max(std::thread::hardware_concurrency(), 1U));
  try {
    const CheckpointReader reader = open_checkpoint(path);
    const std::vector<std::string> faults = check == WeightCheck::kBytes
                                                ? reader.verify(threads)
                                                : reader.check_files();
    if (!faults.empty()) return faults.front();
    reader.side_file("config.json");
    return "";
  } catch (const DataLost& error) {
    return error.what();
  }
}

std::string passed_over(const std::string& path, const std::string& fault) {
  return cat(path, " is skipped: ", fault);
}

// Returns the first valid checkpoint in the order in which a run would resume.
// Adds those before it to the notes.
std::optional<ListedCheckpoint> newest_sound(const std::string& store,
                                             WeightCheck check,
                                             std::vector<std::string>& notes) {
  if (store.empty()) return std::nullopt;
  for (const ListedCheckpoint& listed : resume_order(Folder::open(store))) {
    const std::string path = cat(store, "/", listed.name);
    const std::string fault = fault_of_checkpoint(path, check);
    if (fault.empty()) return listed;
    notes.push_back(passed_over(path, fault));
  }
  return std::nullopt;
}

}  // namespace

ChosenWeights choose_weights(const std::string& folder, WeightCheck check) {
  ChosenWeights chosen{.path = folder};
  chosen.is_checkpoint = is_there(cat(folder, "/", kManifestFile));
  if (chosen.is_checkpoint) return chosen;
  const std::string store = checkpoint_store_in(folder);
  const auto sound = newest_sound(store, check, chosen.notes);
  const std::optional<RunSummary> end = summary_of_weights(folder);
  const bool is_later = end && end->has_ended() && end->state != "diverged" &&
                        end->steps > (sound ? sound->step : -1);
  if (is_later || store.empty()) {
    const std::string fault = end && check == WeightCheck::kBytes
                                  ? fault_of_weights(folder, *end)
                                  : "";
    if (fault.empty()) return chosen;
    if (store.empty()) throw CheckpointRefused(fault);
    chosen.notes.push_back(passed_over(cat(folder, "/", kHfWeights), fault));
  }
  if (!sound)
    throw CheckpointRefused(cat("no checkpoint in ", quoted(folder, 300),
                                " is complete:\n", join(chosen.notes, "\n")));
  chosen.path = cat(store, "/", sound->name);
  chosen.is_checkpoint = true;
  return chosen;
}

FoundModel find_model(const std::string& path, WeightCheck check) {
  std::string plain = path;
  while (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  if (!is_folder(plain))
    throw UsageError(cat("no folder ", quoted(path, 300),
                         "; expected a Hugging Face folder (config.json and "
                         "model.safetensors), a run or a checkpoint"));
  const ChosenWeights chosen = choose_weights(plain, check);
  FoundModel found = chosen.is_checkpoint
                         ? model_of_checkpoint(chosen.path)
                         : model_of_hf_folder(plain);  // throws what is missing
  found.notes = chosen.notes;
  return found;
}

std::shared_ptr<const WeightSource> open_weights(const FoundModel& found,
                                                 const Model& model) {
  if (found.is_checkpoint)
    return checkpoint_source(open_checkpoint(found.path), model);
  return hf_source(HfFolder::open(found.path), model);
}

std::shared_ptr<const WeightSource> initial_weights(
    const TrainConfig& config, const Model& model,
    std::vector<std::string>& notes) {
  if (config.init.empty()) return nullptr;
  const FoundModel found = find_model(config.init);
  notes.insert(notes.end(), found.notes.begin(), found.notes.end());
  return open_weights(found, model);
}

void require_finite(const WeightSource& source, const Tensor& tensor,
                    std::span<const float> values) {
  const auto odd = std::ranges::find_if(
      values, [](float value) { return !std::isfinite(value); });
  if (odd == values.end()) return;
  throw CheckpointRefused(cat(quoted(source.path(), 300), ": tensor ",
                              quoted(tensor.name), " holds ", *odd,
                              "; expected finite weights: they are corrupt, or "
                              "too large for the type they were saved in"));
}

void read_shard(const WeightSource& source, const Tensor& tensor, int32_t tp,
                int32_t t, std::span<float> shard) {
  std::vector<TensorPiece> pieces;
  size_t filled = 0;
  for (const ExtentCopy& run : logical_runs(tensor, tp, t)) {
    const auto count = static_cast<size_t>(run.count);
    pieces.push_back(
        {run.to, shard.subspan(static_cast<size_t>(run.from), count)});
    filled += count;
  }
  CANZONA_CHECK_EQ(filled, shard.size(), "elements of ", tensor.name);
  source.read(tensor, pieces);
  require_finite(source, tensor, shard);
}

std::unique_ptr<LocalDecoder> open_local_decoder(const FoundModel& found,
                                                 const LocalSizes& sizes) {
  Settings settings = found.settings;
  settings.push_back({"model.length", sizes.length, "asked for"});
  settings.push_back({"batch.micro", sizes.micro_batch, "asked for"});
  settings.push_back({"batch.global", sizes.micro_batch, "asked for"});
  const TrainConfig config = make_config(settings);
  const DecoderConfig decoder = decoder_of(config);
  const auto weights =
      open_weights(found, decoder_shapes(decoder, model_name(config)));
  return std::make_unique<LocalDecoder>(
      decoder, model_name(config),
      [&](const Tensor& tensor, std::span<float> whole) {
        weights->read(tensor, {{0, whole}});
      });
}

namespace {

int64_t exchanged_parameters(const Model& model) {
  int64_t sum = 0;
  for (const Tensor& tensor : model.tensors) sum += tensor.elements();
  return sum;
}

}  // namespace

HfNumbers hf_numbers_of(const DecoderConfig& decoder, int64_t context) {
  return {.architecture = decoder.architecture,
          .length = std::max(context, decoder.length),
          .norm_epsilon = decoder.norm_epsilon,
          .rope_base = decoder.rope_base,
          .experts_per_token = decoder.experts_per_token,
          .balance_coefficient = decoder.balance_coefficient};
}

HfExported export_hf(const CheckpointReader& reader,
                     const HfExportRequest& request) {
  const TrainConfig saved = saved_config(reader);
  const DecoderConfig decoder = decoder_of(saved);
  const Model model = decoder_shapes(decoder, model_name(saved));
  HfNumbers numbers = hf_numbers_of(decoder, context_length_of(saved));
  numbers.type = request.format.type;
  const std::string config = hf_config(numbers);
  const auto source = checkpoint_source(open_checkpoint(reader.path()), model);

  HfExported done{.step = reader.manifest().step,
                  .model_type = hf_model_type(decoder.architecture),
                  .parameters = exchanged_parameters(model),
                  .files = hf_files(model, request.format)};
  for (const HfFile& file : done.files) done.bytes += file.data_bytes;
  NewFolder folder(request.folder, "canzona ckpt export");
  folder.require_space(done.bytes);
  WeightFiles files(folder.path(), model, request.format);
  std::vector<float> whole;
  for (int32_t t = 0; t < std::ssize(model.tensors); ++t) {
    const Tensor& tensor = model.tensors[static_cast<size_t>(t)];
    whole.resize(static_cast<size_t>(tensor.elements()));
    source->read(tensor, {{0, whole}});
    files.add(t, whole);
  }
  files.finish();
  write_file(cat(folder.path(), "/", kHfConfig), config);
  if (!request.tokenizer.empty())
    write_file(cat(folder.path(), "/tokenizer.json"), request.tokenizer);
  folder.commit();
  return done;
}

}  // namespace canzona::train
