// `canzona sample`: continues a text with a model.
#include <algorithm>
#include <memory>

#include "canzona/base/error.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/data/unicode.h"
#include "canzona/measure/clock.h"
#include "canzona/model/token_decoder.h"
#include "canzona/report/shown_plan.h"
#include "cli/options.h"
#include "cli/run_model.h"
#include "cli/verbs.h"

namespace canzona::cli {
namespace {

constexpr const char* kSampleExamples =
    R"(Examples:
  canzona sample --run runs/one --prompt 'the '
  canzona sample --run runs/one --prompt 'Once' --tokens 400 --temperature 0.8 --top-k 40
  canzona sample --run runs/one --step 1000 --prompt 'the '
  canzona sample --run Qwen3-0.6B --prompt 'The capital of France is' --json

The model is the newest checkpoint of the run (--step: another one), else its final weights, else
those of a Hugging Face folder. Without --temperature the most likely token is chosen each time; with
it, tokens are sampled from softmax(logits / T), with --top-k among the K most likely. The same seed
gives the same text.

Text is encoded with the tokenizer.json in the folder, or as bytes. Output ends after --tokens tokens,
or with a special token such as end-of-text. When the model's context (model.length in training) is
full, the older half of the text is dropped and the rest is read again.
)";

constexpr int64_t kMostTokens = 1'000'000;
constexpr double kHottest = 1000;

struct SampleFlags {
  RunModelRequest model;
  std::string prompt;
  int64_t tokens = 128;
  double temperature = 0;
  int64_t top_k = 0;
  int64_t seed = 0;
  bool json = false;
};

void check_flags(const SampleFlags& a) {
  if (a.prompt.empty())
    throw UsageError("--prompt is empty; expected some text to continue");
  if (!(a.temperature >= 0 && a.temperature <= kHottest))
    throw UsageError(cat("--temperature ", a.temperature, ": expected 0 to ",
                         kHottest, ", such as 0.8"));
  if (a.top_k > 0 && a.temperature == 0)
    throw UsageError(cat("--top-k ", a.top_k,
                         ": without --temperature the most likely token is "
                         "always chosen; add it, such as --temperature 0.8"));
}

std::vector<int32_t> prompt_tokens(const SampleFlags& a,
                                   const RunModel& model) {
  std::vector<int32_t> tokens;
  if (model.tokenizer) {
    const auto prefix = model.tokenizer->prefix();
    tokens.assign(prefix.begin(), prefix.end());
    TokenEncoder(*model.tokenizer).encode(a.prompt, tokens);
  } else {
    for (const char c : a.prompt)
      tokens.push_back(static_cast<unsigned char>(c));
  }
  if (std::ssize(tokens) >= model.context)
    throw UsageError(cat("--prompt has ", tokens.size(),
                         " tokens; expected at most ", model.context - 1,
                         ": the context of ", quoted(model.path, 300), " is ",
                         model.context, " tokens"));
  return tokens;
}

struct Sampled {
  std::vector<int32_t> tokens;  // without the prompt's
  std::string text;
  std::string stop;  // why it ended
  int64_t prompt_tokens = 0;
  int64_t forgotten = 0;  // tokens dropped for lack of context
  double seconds = 0;
};

class Sampler {
 public:
  Sampler(const SampleFlags& flags, const RunModel& model)
      : flags_(flags),
        tokenizer_(model.tokenizer),
        read_(prompt_tokens(flags, model)),
        weights_(open_local_decoder(model.found, {.length = 1})),
        decoder_(weights_->config(), weights_->shapes(), weights_->engine(),
                 weights_->parameters(),
                 std::min(model.context, std::ssize(read_) + flags.tokens)),
        vocab_(tokenizer_ ? tokenizer_->vocab() : model.vocab) {}

  double num_parameters() const {
    double sum = 0;
    for (const Tensor& tensor : weights_->shapes().tensors)
      sum += static_cast<double>(tensor.elements());
    return sum;
  }

  // `show` gets the text as it is generated.
  template <class Show>
  Sampled run(const Show& show);

 private:
  std::string bytes_of(int32_t token) const {
    return tokenizer_ ? std::string(tokenizer_->bytes_of(token))
                      : std::string(1, static_cast<char>(token));
  }
  int32_t choose(std::span<const float> logits, size_t number) const {
    const double chance =
        static_cast<double>(
            bits_at(static_cast<uint64_t>(flags_.seed), number) >> 11) *
        0x1p-53;
    return choose_token(logits.first(static_cast<size_t>(vocab_)),
                        {flags_.temperature, flags_.top_k}, chance);
  }
  // Returns the logits after the token read last.
  std::span<const float> go_on(Sampled& out);

  const SampleFlags& flags_;
  const std::optional<Tokenizer>& tokenizer_;
  std::vector<int32_t> read_;  // the prompt and what followed
  std::unique_ptr<LocalDecoder> weights_;
  TokenDecoder<float> decoder_;
  int64_t vocab_;  // tokens to choose from
};

std::span<const float> Sampler::go_on(Sampled& out) {
  if (decoder_.count() < decoder_.capacity())
    return decoder_.read(std::span(read_).last(1));
  const int64_t kept = std::max<int64_t>(decoder_.capacity() / 2, 1);
  out.forgotten += decoder_.count() - kept + 1;
  decoder_.restart();
  return decoder_.read(std::span(read_).last(static_cast<size_t>(kept)));
}

template <class Show>
Sampled Sampler::run(const Show& show) {
  Sampled out;
  out.prompt_tokens = std::ssize(read_);
  TextStream stream;
  show(stream.add(flags_.prompt));
  const double start = wall_seconds();
  std::span<const float> logits = decoder_.read(read_);
  out.stop = "tokens";
  while (true) {
    const int32_t token = choose(logits, out.tokens.size());
    out.tokens.push_back(token);
    read_.push_back(token);
    if (tokenizer_ && tokenizer_->is_special(token)) {
      out.stop = cat("special token ", printable(tokenizer_->bytes_of(token)));
      break;
    }
    out.text += bytes_of(token);
    show(stream.add(bytes_of(token)));
    if (std::ssize(out.tokens) == flags_.tokens) break;
    logits = go_on(out);
  }
  out.seconds = wall_seconds() - start;
  show(stream.finish());
  return out;
}

double tokens_per_second(const Sampled& out) {
  return static_cast<double>(out.tokens.size()) / std::max(out.seconds, 1e-9);
}

Document sample_view(const SampleFlags& a, const RunModel& model,
                     const Sampled& sampled) {
  Document out = run_model_members(model);
  out.set("prompt", a.prompt).set("text", sampled.text);
  out.set("stop", sampled.stop).set("prompt_tokens", sampled.prompt_tokens);
  out.set("context", model.context).set("forgotten", sampled.forgotten);
  out.set("temperature", a.temperature).set("top_k", a.top_k);
  out.set("seed", a.seed).set("seconds", sampled.seconds);
  out.set("tokens_per_second", tokens_per_second(sampled));
  return out.set("tokens", sampled.tokens).text("\n");
}

Outcome run(const SampleFlags& a, const Output& out) {
  check_flags(a);
  const RunModel model = open_run_model(a.model);
  for (const std::string& note : model.notes) out.note(cat("note: ", note));
  Sampler sampler(a, model);
  out.note(cat(model.name(), ": ", human_count(sampler.num_parameters()),
               " parameters, a context of ", model.context,
               model.tokenizer ? " tokens" : " bytes"));
  const Sampled sampled = sampler.run([&](const std::string& text) {
    if (!a.json && !text.empty()) out.result(text);
  });
  // The text has been written while it came.
  out.result(sample_view(a, model, sampled), a.json);
  out.note(cat(
      counted(std::ssize(sampled.tokens), "token"), " in ",
      human_seconds(sampled.seconds), ", ",
      human_count(tokens_per_second(sampled)), " a second",
      sampled.forgotten > 0 ? cat("; ", sampled.forgotten,
                                  " were dropped because the context was full")
                            : "",
      sampled.stop == "tokens" ? "" : cat("; ended by a ", sampled.stop)));
  return Outcome::kDone;
}

OptionRows options_of(SampleFlags& a) {
  return joined(
      {run_model_options(a.model),
       {option("--prompt", a.prompt, "TEXT", "the text to continue").required(),
        option("--tokens", a.tokens, "N", "number of tokens to generate")
            .between(1, kMostTokens),
        option("--temperature", a.temperature, "T",
               "sampling temperature; 0: always the most likely token"),
        option("--top-k", a.top_k, "K",
               "sample among the K most likely tokens; 0: all")
            .at_least(0),
        option("--seed", a.seed, "S", "random seed").at_least(0),
        json_flag(a.json)}});
}

}  // namespace

Verb add_sample(CLI::App& root) {
  return add_verb_of<SampleFlags>(
      root, {.name = "sample",
             .description = "let a trained model continue a text",
             .footer = kSampleExamples});
}

}  // namespace canzona::cli
