// Fixtures of single functions: Newton-Schulz with its links, roots, QK-clip.
#include <functional>
#include <memory>

#include "canzona/base/check.h"
#include "canzona/base/error.h"
#include "canzona/base/text.h"
#include "tests/conformance/replay.h"
#include "tests/conformance/translate.h"
#include "canzona/rules/muon/linked.h"
#include "canzona/rules/muon/newton_schulz.h"
#include "canzona/rules/qk_clip.h"
#include "canzona/rules/runs.h"
#include "canzona/rules/shampoo/roots.h"

namespace canzona::tests {
namespace {

// A function of stacks of matrices, in fp64 or fp32.
using Function = std::function<void(ConstMatrices in, Matrices out)>;

template <class Real>
std::vector<double> computed(Engine& engine, const FixtureTensor& in,
                             const Function& f) {
  EngineMemory memory(engine);
  const Run from =
      memory.put(std::vector<Real>(in.values.begin(), in.values.end()));
  const auto size = std::ssize(in.values);
  const Run to = memory.zeros(size, from.dtype);
  const int64_t rows = in.dims[in.dims.size() - 2];
  const int64_t cols = in.dims.back();
  const int64_t count = in.dims.size() == 3 ? in.dims[0] : 1;
  f(as_matrices(ConstRun(from), rows, cols, count),
    as_matrices(to, rows, cols, count));
  const std::vector<Real> here = memory.get<Real>(to.data, size);
  return {here.begin(), here.end()};
}

const FixtureTensor& input_of(const Fixture& fixture, const TensorName& name,
                              const FixtureTensor& out) {
  const std::string in_name = cat("in.", name.step);
  const FixtureTensor& in = fixture.tensor(in_name);
  if (in.dims.size() < 2 || in.dims.size() > 3)
    fixture.refuse(cat("tensor ", quoted(in_name), " is ",
                       canzona::to_string(in.dims),
                       ", which is not a matrix or a stack of matrices"));
  if (in.dims != out.dims)
    fixture.refuse(cat("tensor ", quoted(to_string(name)), " is ",
                       canzona::to_string(out.dims), ", its input is ",
                       canzona::to_string(in.dims)));
  return in;
}

// Returns "f32" for "out_f32.r2"; empty if there is none.
std::string output_dtype(const std::string& what) {
  constexpr std::string_view kOut = "out_";
  if (!what.starts_with(kOut)) return "";
  return what.substr(kOut.size(), what.find('.') - kOut.size());
}

// Calls `function_of` for the function of each output, and compares.
template <class FunctionOf>
Findings check_outputs(Engine& engine, const Fixture& fixture,
                       const CheckOptions& options,
                       const FunctionOf& function_of) {
  Findings findings;
  for (const auto& [text, out] : fixture.tensors) {
    const TensorName name = *parse_tensor_name(text);
    const std::string dtype = output_dtype(name.what);
    if (name.what == "in" || name.what == "max_logits") continue;
    if (dtype != "f64" && dtype != "f32" && dtype != "bf16")
      fixture.refuse(cat("tensor ", quoted(text), " is not a result"));
    const FixtureTensor& in = input_of(fixture, name, out);
    const auto tolerance = tolerance_of(fixture, name);
    if (!tolerance) continue;
    const Function function = function_of(name, dtype, findings);
    const std::vector<double> got = dtype == "f64"
                                        ? computed<double>(engine, in, function)
                                        : computed<float>(engine, in, function);
    findings.add(text, deviation(got, out.values),
                 widened(*tolerance, options.slack_of(dtype)));
  }
  return findings;
}

Findings check_newton_schulz(Engine& engine, const Fixture& fixture,
                             const CheckOptions& checked) {
  const std::string& form = checked.newton_schulz;
  const auto function_of = [&](const TensorName&, const std::string& dtype,
                               Findings&) -> Function {
    const std::string precision =
        dtype == "f64" ? "fp64" : (dtype == "f32" ? "fp32" : "bf16");
    const RuleOptions options =
        translate_newton_schulz(fixture, precision, form, checked.device);
    const auto facts = std::make_shared<MuonFacts>(
        supported([&] { return MuonFacts(options); }));
    return [&engine, facts](ConstMatrices in, Matrices out) {
      run_links(engine, facts->links(), {.blend = in}, out, {},
                [&](Matrices o, int64_t begin) {
                  orthogonalize(engine, *facts, in.part(begin, o.count), o);
                });
    };
  };
  return check_outputs(engine, fixture, checked, function_of);
}

// "out_f64.r8_3" asks for the power -3/8.
InversePower power_of(const Fixture& fixture, const TensorName& name) {
  const size_t dot = name.what.find(".r");
  if (dot == std::string::npos)
    fixture.refuse(cat("tensor ", quoted(to_string(name)), " names no root"));
  const std::vector<std::string> parts =
      split_text(std::string_view(name.what).substr(dot + 2), '_');
  const auto number = [&](const std::string& text) {
    return parse_integer(
        text, 1, 64,
        cat(printable(fixture.file), ": root of ", quoted(to_string(name))));
  };
  if (parts.size() > 2)
    fixture.refuse(cat("tensor ", quoted(to_string(name)), " names no root"));
  return {number(parts[0]), parts.size() == 2 ? number(parts[1]) : 1};
}

Findings check_roots(Engine& engine, const Fixture& fixture,
                     const CheckOptions& checked) {
  OptionReader from(fixture);
  RuleOptions to;
  from.ignore({"roots"});
  translate_root(from, to);
  to["exponent"] = "0.5";  // valid for every root; each output has its own
  from.finish();
  const RootOptions options =
      supported([&] { return ShampooOptions(to).root; });
  const auto function_of = [&](const TensorName& name, const std::string&,
                               Findings& findings) -> Function {
    const InversePower power = power_of(fixture, name);
    return [&, power, name](ConstMatrices in, Matrices out) {
      if (in.rows != in.cols)
        fixture.refuse(cat("in.", name.step, " is not square"));
      std::vector<RootStatus> statuses(static_cast<size_t>(in.count));
      inverse_roots(engine, out, in, power, options, statuses);
      for (const RootStatus& status : statuses)
        if (!status.succeeded)
          findings.fail(cat(to_string(name), ": ", status.reason));
    };
  };
  return check_outputs(engine, fixture, checked, function_of);
}

// Returns what every row of input `number` is multiplied by.
std::vector<double> row_factors(const Fixture& fixture, int64_t number,
                                const QkClip& clip) {
  const std::string where =
      cat(printable(fixture.file), ": geometry of in.", number);
  const Json& of = get_member(fixture.geometry, cat(number).c_str(), where);
  const auto count = [&](const char* key) {
    return get_integer(of, key, 1, 1 << 20, where);
  };
  const std::string weight = get_string(of, "weight", where);
  const int64_t heads = count("heads");
  const int64_t groups = weight == "qkv" ? count("groups") : heads;
  const QkFactors factors = qk_factors(
      fixture.tensor(cat("max_logits.", number)).values, groups, clip);
  std::vector<double> rows;
  for (int64_t g = 0; g < groups; ++g) {
    const auto put = [&](const char* key, double factor) {
      rows.insert(rows.end(), index(count(key)), factor);
    };
    const int64_t first = g * (heads / groups);
    if (weight == "qkv") {
      for (int64_t h = first; h < first + heads / groups; ++h)
        put("head_dim", factors.query.at(index(h)));
      put("head_dim", factors.key.at(index(g)));
      put("head_dim", 1);
    } else if (weight == "mla_q") {
      put("nope", factors.query.at(index(g)));
      put("rope", factors.query_rope.at(index(g)));
    } else if (weight == "mla_kv") {
      put("nope", factors.key.at(index(g)));
      put("value", 1);
    } else {
      throw Unsupported(cat("weight=", printable(weight)));
    }
  }
  return rows;
}

Findings check_qk_clip(Engine& engine, const Fixture& fixture,
                       const CheckOptions& checked) {
  OptionReader from(fixture);
  const QkClip clip{.tau = from.real("qk_clip.tau"),
                    .alpha = from.real("qk_clip.alpha")};
  from.finish();
  const auto function_of = [&](const TensorName& name, const std::string&,
                               Findings&) -> Function {
    return [&, name](ConstMatrices in, Matrices out) {
      const std::vector<double> rows = row_factors(fixture, name.step, clip);
      if (std::ssize(rows) != in.rows)
        fixture.refuse(cat("in.", name.step, " has ", in.rows,
                           " rows, its heads have ", rows.size()));
      EngineMemory memory(engine);
      const Run factors =
          in.dtype == DType::kFp64
              ? memory.put(rows)
              : memory.put(std::vector<float>(rows.begin(), rows.end()));
      engine.scale_rows(out, in, as_matrices(ConstRun(factors), 1, in.rows, 1));
    };
  };
  return check_outputs(engine, fixture, checked, function_of);
}

}  // namespace

Findings check_pure(Engine& engine, const Fixture& fixture,
                    const CheckOptions& options) {
  if (fixture.rule == "qkclip") return check_qk_clip(engine, fixture, options);
  return fixture.rule == "ns" ? check_newton_schulz(engine, fixture, options)
                              : check_roots(engine, fixture, options);
}

}  // namespace canzona::tests
