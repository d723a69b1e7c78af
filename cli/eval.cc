// `canzona eval`: loss and perplexity of a model on a text.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <numbers>

#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "canzona/data/batches.h"
#include "canzona/measure/clock.h"
#include "canzona/report/train_lines.h"
#include "canzona/train/model_source.h"
#include "cli/options.h"
#include "cli/run_model.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kEvalExamples =
    R"(Examples:
  canzona eval --run runs/one                        repeat its last evaluation
  canzona eval --run runs/one --step 1000 --sequences 0
  canzona eval --run runs/one --data other.txt       the whole of another text
  canzona eval --run Qwen3-0.6B --data book.txt --length 512 --json

The model is found as for canzona sample. By default, the data is that of the run: only its held-out
end (data.held_out), and as many of its sequences as the run evaluated. The loss is then the one that
the run reported, to the last bit if the run did not use tp. Other data is used whole; --all uses all
of the run's data, too. Sequences of --length tokens are adjacent; every token but the first of each
is predicted.

Loss is the mean cross entropy of a token in nats, perplexity is exp(loss). If the bytes of tokens
are known, from a tokenizer or because tokens are bytes, both are also given per byte, and in bits,
to compare models with different tokenizers.
)";

struct EvalFlags {
  RunModelRequest model;
  std::string data;
  std::optional<int64_t> sequences;
  std::optional<int64_t> length;
  bool all = false;
  bool json = false;
};

// Bounds the memory for sequences of a model without a run.
constexpr int64_t kLongest = 1024;

// The data to evaluate, resolved.
struct EvalData {
  std::string path;
  bool is_of_run = false;  // the run's own data, by its path
  bool held_out = false;   // only its end
  int64_t length = 0;
  int64_t micro_batch = 1;
  std::unique_ptr<TokenSource> tokens;
  std::optional<Batches> batches;  // if the end is held out
  int64_t there = 0;               // sequences available
  int64_t count = 0;               // sequences to evaluate
  // True if these are the run's training tokens; nothing if that is not known
  // or other data was requested.
  std::optional<bool> is_same = {};

  int64_t first_token() const {
    return batches ? batches->first_held_out() : 0;
  }
  void read(int64_t number, std::span<int32_t> to) const {
    if (batches)
      batches->held_out(number, to);
    else
      tokens->read(number * length, to);
  }
};

bool is_data_of(const TrainConfig& config, const std::string& path) {
  if (path.empty() || path == config.data.path) return true;
  std::error_code ignored;
  return std::filesystem::equivalent(path, config.data.path, ignored);
}

void open_data(const EvalFlags& a, const RunModel& model, EvalData& data) {
  TokenOptions options{.vocab = model.vocab, .tokenizer = model.tokenizer};
  if (model.config) options.seed = static_cast<uint64_t>(model.config->seed);
  data.tokens = open_tokens(data.path, options);
  if (data.is_of_run && !model.data_digest.empty())
    data.is_same = data.tokens->digest() == model.data_digest;
  if (data.held_out)
    data.batches.emplace(*data.tokens,
                         BatchOptions{.length = data.length,
                                      .seed = options.seed,
                                      .held_out = model.config->data.held_out});
  data.there = data.batches ? data.batches->num_held_out()
                            : (data.tokens->size() - 1) / data.length;
  if (data.there < 1)
    throw UsageError(cat(quoted(data.path, 300), ": ", data.tokens->size(),
                         " tokens, expected at least ", data.length + 1,
                         " for one sequence; try a smaller --length"));
  const int64_t wanted = a.sequences     ? *a.sequences
                         : data.held_out ? eval_sequences_of(*model.config)
                                         : 0;
  data.count = wanted == 0 ? data.there : std::min(wanted, data.there);
}

EvalData settle_data(const EvalFlags& a, const RunModel& model) {
  if (a.data.empty() && !model.config)
    throw UsageError(cat("--data is missing: ", quoted(model.path, 300),
                         " is not a run, so it has no training data to use"));
  if (a.sequences && *a.sequences < 0)
    throw UsageError(cat("--sequences ", *a.sequences,
                         ": expected 1 or more, or 0 for all"));
  EvalData data;
  data.path = a.data.empty() ? model.config->data.path : a.data;
  data.is_of_run = model.config && is_data_of(*model.config, a.data);
  data.held_out = data.is_of_run && !a.all;
  data.length = model.config ? model.config->model.length
                             : std::min(model.context, kLongest);
  if (model.config) data.micro_batch = model.config->batch.micro;
  if (a.length) {
    if (*a.length < 1 || *a.length > model.context)
      throw UsageError(cat("--length ", *a.length, ": expected 1 to ",
                           model.context, ", the context of the model"));
    data.length = *a.length;
  }
  open_data(a, model, data);
  return data;
}

struct Evaluated {
  double loss = 0;  // per token
  int64_t tokens = 0;
  int64_t bytes = 0;  // of these tokens; 0: not known
  double seconds = 0;

  double per_byte() const {
    return loss * static_cast<double>(tokens) / static_cast<double>(bytes);
  }
};

int64_t bytes_of(const RunModel& model, std::span<const int32_t> tokens) {
  if (!model.tokenizer) return std::ssize(tokens);
  int64_t bytes = 0;
  for (const int32_t token : tokens)
    bytes += std::ssize(model.tokenizer->bytes_of(token));
  return bytes;
}

Evaluated evaluate(const RunModel& model, const EvalData& data,
                   const Output& out) {
  const auto decoder = open_local_decoder(
      model.found, {.length = data.length, .micro_batch = data.micro_batch});
  Evaluated result{.tokens = data.count * data.length};
  const double start = wall_seconds();
  // Sequences are consecutive; the very first token is not a target.
  const int64_t text_bytes =
      data.tokens->text_bytes(data.first_token() + 1, result.tokens);
  int64_t next = 0;  // the next sequence whose bytes are to be counted
  const auto read = [&](int64_t number, std::span<int32_t> to) {
    data.read(number, to);
    if (number != next) return;
    ++next;
    result.bytes += bytes_of(model, to.subspan(1));
  };
  result.loss = mean_loss(*decoder, data.count, read, [&](int64_t done) {
    out.progress(cat("evaluating: ", done, " of ", data.count, " sequences"));
  });
  out.progress("");
  if (text_bytes >= 0) result.bytes = text_bytes;
  result.seconds = wall_seconds() - start;
  return result;
}

Document eval_view(const RunModel& model, const EvalData& data,
                   const Evaluated& result) {
  const auto text_of = [](double loss) { return fmt::format("{:.4f}", loss); };
  Document out = run_model_members(model);
  out.text(cat("loss        ", text_of(result.loss), " per token\n",
               "perplexity  ", perplexity_text(result.loss), " per token\n"));
  if (result.bytes > 0) {
    const double bits = result.per_byte() / std::numbers::ln2;
    out.text(cat("per byte    ", text_of(result.per_byte()), " (",
                 text_of(bits), " bits), perplexity ",
                 perplexity_text(result.per_byte()), "\n"));
    out.set("bytes", result.bytes).set("loss_per_byte", result.per_byte());
    out.set("bits_per_byte", bits);
    out.set("perplexity_per_byte", perplexity_of(result.per_byte()));
  }
  out.text(cat("over        ", data.count, " of ", data.there,
               data.held_out ? " held-out" : "", " sequences of ", data.length,
               " tokens: ", printable(data.path), "\n"));
  out.set("data", data.path).set("held_out", data.held_out);
  if (data.is_same) out.set("same_data", *data.is_same);
  out.set("length", data.length).set("sequences", data.count);
  out.set("sequences_there", data.there).set("tokens", result.tokens);
  out.set("loss", result.loss).set("perplexity", perplexity_of(result.loss));
  return out.set("seconds", result.seconds);
}

Outcome run(const EvalFlags& a, const Output& out) {
  const RunModel model = open_run_model(a.model);
  for (const std::string& note : model.notes) out.note(cat("note: ", note));
  const EvalData data = settle_data(a, model);
  out.note(cat(model.name(), " on ", data.tokens->describe()));
  if (data.is_same == false)
    out.note(
        cat("note: ", printable(data.path, 300),
            " is not the data of the run: the file has changed, or the "
            "tokenizer is a different one; the loss is not comparable with the "
            "run's, and the model may have been trained on these sequences"));
  const Evaluated result = evaluate(model, data, out);
  out.result(eval_view(model, data, result), a.json);
  if (!std::isfinite(result.loss))
    throw NumericalError(cat("the loss is not finite: the weights of ",
                             quoted(model.path, 300), " are broken"));
  return Outcome::kDone;
}

OptionRows options_of(EvalFlags& a) {
  return joined(
      {run_model_options(a.model),
       {option("--data", a.data, "PATH", "data, as for canzona train")
            .by_default("what the run was trained on"),
        option("--sequences", a.sequences, "N",
               "number of sequences, from the first; 0: all")
            .by_default("as many as the run evaluated; of other data, all"),
        option("--length", a.length, "N", "tokens per sequence")
            .by_default(
                cat("as in training; of a Hugging Face folder, at most ",
                    kLongest)),
        flag("--all", a.all,
             "use all of the run's data, not only its held-out end"),
        json_flag(a.json)}});
}

}  // namespace

Verb add_eval(CLI::App& root) {
  return add_verb_of<EvalFlags>(
      root, {.name = "eval",
             .description = "compute loss and perplexity of a trained model",
             .footer = kEvalExamples});
}

}  // namespace canzona::cli
