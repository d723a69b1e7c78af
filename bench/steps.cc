// How long does one step of a rule take? Answers line by line, so that another
// program can take turns with it (against_torch.py does):
//
//   $ build/bench/steps
//   < muon threads=1 shapes=1024x3072*4,1024x1024 precision=bf16
//   > {"seconds": 0.0731}
//   < plain_soap threads=1 shapes=512x512 period=10
//   > {"seconds": 0.0512}
//   < error threads=1 shapes=1024x3072 precision=bf16 newton_schulz=gram
//   > {"error": 0.0104}
//   < rates
//   > {"sgemm_gflops": 151, …}
//
// The first line it prints tells about the machine. Words after the shapes are
// options of the rule; nonfinite=propagate leaves out the look at every
// gradient that comes before a step, as PyTorch does. A rule asked for the
// first time takes two steps before the one that counts; states stay between
// questions. With one thread, CPU time; with several, time by the wall.
#include <cmath>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>

#include "bench/plain_rules.h"
#include "bench/rule_step.h"
#include "canzona/base/error.h"
#include "canzona/base/json_writer.h"
#include "canzona/base/random.h"
#include "canzona/base/text.h"
#include "canzona/measure/clock.h"
#include "canzona/measure/machine.h"
#include "canzona/rules/optimizer.h"

namespace canzona::bench {
namespace {

struct Question {
  std::string rule;
  int threads = 1;
  std::vector<MatrixShape> shapes;
  // True if every gradient is looked at before anything is changed.
  bool looks_at_gradients = true;
  RuleOptions options;
};

// "1024x3072*4,1024x1024"
std::vector<MatrixShape> parse_shapes(const std::string& text) {
  std::vector<MatrixShape> shapes;
  for (const std::string& item : split_text(text, ',')) {
    const std::vector<std::string> parts = split_text(item, '*');
    const std::vector<std::string> sides = split_text(parts[0], 'x');
    if (sides.size() != 2) throw UsageError(cat("shape ", quoted(item)));
    const MatrixShape shape{parse_integer(sides[0], 1, 1 << 20, "rows"),
                            parse_integer(sides[1], 1, 1 << 20, "cols")};
    const int64_t count =
        parts.size() < 2 ? 1 : parse_integer(parts[1], 1, 10000, "count");
    shapes.insert(shapes.end(), static_cast<size_t>(count), shape);
  }
  return shapes;
}

Question parse(const std::string& line) {
  Question question;
  std::istringstream words(line);
  words >> question.rule;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw UsageError(cat("word ", word));
    const std::string name = word.substr(0, equals);
    const std::string value = word.substr(equals + 1);
    if (name == "threads")
      question.threads =
          static_cast<int>(parse_integer(value, 1, 1024, "threads"));
    else if (name == "nonfinite")
      question.looks_at_gradients = value != "propagate";
    else if (name == "shapes")
      question.shapes = parse_shapes(value);
    else
      question.options[name] = value;
  }
  return question;
}

// In memory of the arena, on large pages.
float* noise(Arena& arena, MatrixShape shape, uint64_t seed, double size) {
  const int64_t count = shape.rows * shape.cols;
  auto* values = arena.take_array<float>(count);
  for (int64_t i = 0; i < count; ++i)
    values[i] =
        static_cast<float>(size * normal_at(seed, static_cast<uint64_t>(i)));
  return values;
}

// Something that can take one step after another.
class Subject {
 public:
  explicit Subject(const Question& question)
      : lanes_(question.threads, [] { return make_cpu_engine(); }) {
    for (size_t i = 0; i < question.shapes.size(); ++i) {
      weights_.push_back(noise(memory_, question.shapes[i], 2 * i, 0.02));
      grads_.push_back(noise(memory_, question.shapes[i], 2 * i + 1, 1));
    }
  }
  virtual ~Subject() = default;
  virtual void step() = 0;

 protected:
  Lanes lanes_;
  Arena memory_;
  Arena::Scope whole_life_{memory_};
  std::vector<float*> weights_;
  std::vector<const float*> grads_;
};

class OurRule final : public Subject {
 public:
  explicit OurRule(const Question& question) : Subject(question) {
    std::vector<Optimizer::Tensor> tensors;
    for (size_t i = 0; i < question.shapes.size(); ++i)
      tensors.push_back({cat("matrix ", i),
                         {question.shapes[i].rows, question.shapes[i].cols},
                         run_of(weights_[i]),
                         run_of(grads_[i])});
    optimizer_ = std::make_unique<Optimizer>(
        make_rule(question.rule, question.options, DType::kFp32),
        std::move(tensors), lanes_,
        OptimizerSettings{.on_nonfinite = question.looks_at_gradients
                                              ? OnNonfinite::kSkipStep
                                              : OnNonfinite::kPropagate});
  }
  void step() override { optimizer_->step(1e-3); }

 private:
  std::unique_ptr<Optimizer> optimizer_;
};

template <class Plain>
class PlainRule final : public Subject {
 public:
  explicit PlainRule(const Question& question) : Subject(question) {
    const auto period = static_cast<int>(
        parse_integer(question.options.at("period"), 1, 10000, "period"));
    for (const MatrixShape& shape : question.shapes)
      rules_.emplace_back(shape.rows, shape.cols, period);
  }
  void step() override {
    for (size_t i = 0; i < rules_.size(); ++i)
      rules_[i].step(lanes_.lane(0), weights_[i], grads_[i], 1e-3);
  }

 private:
  std::vector<Plain> rules_;
};

std::unique_ptr<Subject> make_subject(const Question& question) {
  if (question.rule == "plain_soap")
    return std::make_unique<PlainRule<PlainSoap>>(question);
  if (question.rule == "plain_shampoo")
    return std::make_unique<PlainRule<PlainShampoo>>(question);
  return std::make_unique<OurRule>(question);
}

// Returns the error of Newton–Schulz on the first shape, against fp64.
double error_of(const Question& question) {
  TransformRequest request;
  request.shape = question.shapes.front();
  request.rounds = 1;
  request.options = question.options;
  const auto take = [&](const char* name) {
    const std::string value = request.options.at(name);
    request.options.erase(name);
    return std::vector<std::string>{value};
  };
  request.precisions = take("precision");
  request.algorithms = take("newton_schulz");
  return measure_transform(request, [](const std::string&) {})
      .front()
      .error_vs_fp64;
}

void put_rates(JsonWriter& out) {
  const MachineRates rates = measure_rates();
  out.field("sgemm_gflops", rates.sgemm_gflops);
  out.field("packed_gflops", rates.packed_gflops);
  out.field("copy_bytes_per_second", rates.copy_bytes_per_second);
}

class Server {
 public:
  std::string answer(const std::string& line) {
    const Question question = parse(line);
    JsonWriter out;
    out.begin_object();
    if (question.rule == "error") {
      out.field("error", error_of(question));
    } else if (question.rule == "rates") {
      put_rates(out);
    } else if (question.rule == "forget") {
      subjects_.clear();
    } else {
      Subject& subject = find(line, question);
      out.field("seconds",
                seconds_of(question.threads, [&] { subject.step(); }));
    }
    return out.end_object().take();
  }

 private:
  Subject& find(const std::string& line, const Question& question) {
    std::unique_ptr<Subject>& subject = subjects_[line];
    if (subject == nullptr) {
      subject = make_subject(question);
      subject->step();
      subject->step();
    }
    return *subject;
  }

  std::map<std::string, std::unique_ptr<Subject>> subjects_;
};

void greet() {
  const MachineInfo machine = machine_info();
  JsonWriter out;
  out.begin_object();
  out.field("cpu", machine.cpu).field("core", machine.blas.core);
  out.field("blas", machine.blas.library);
  out.field("bf16_kernel", machine.bf16_kernels.front());
  put_rates(out);
  std::printf("%s\n", out.end_object().text().c_str());
  std::fflush(stdout);
}

int serve() {
  greet();
  Server server;
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty()) continue;
    std::string reply;
    try {
      reply = server.answer(line);
    } catch (const std::exception& error) {
      JsonWriter out;
      reply =
          out.begin_object().field("failed", error.what()).end_object().take();
    }
    std::printf("%s\n", reply.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace canzona::bench

int main() { return canzona::bench::serve(); }
