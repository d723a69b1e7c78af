// Every stage of the GPU's decoder in fp32 beside the CPU's loops, over odd
// numbers of rows.
#include "canzona/model/cuda/stages.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "canzona/linalg/cuda/test_support.h"
#include "canzona/model/ops/table.h"

namespace canzona::model::cuda_stages_test {
namespace {

using Floats = std::vector<float>;
constexpr float kEpsilon = 1e-6F;

void expect_near(const Floats& got, const Floats& right,
                 const std::string& what) {
  float most = 0;
  for (const float value : right) most = std::max(most, std::abs(value));
  ASSERT_EQ(got.size(), right.size()) << what;
  for (size_t i = 0; i < right.size(); ++i)
    if (!(std::abs(got[i] - right[i]) <= 2e-5F * most)) {
      ADD_FAILURE() << what << ", index " << i << " of " << right.size()
                    << ": got " << got[i] << ", expected " << right[i];
      return;
    }
}

class CudaStages : public GpuTest {
 protected:
  OnGpu<float> put(const Floats& values) { return {gpu(), values}; }
};

constexpr int64_t kRows[] = {1, 15, 16, 17, 333};
constexpr int64_t kCols[] = {8, 48, 256, 264, 1024, 2056, 5120, 16384};

TEST_F(CudaStages, Norms) {
  for (const int64_t rows : kRows)
    for (const int64_t cols : kCols) {
      const std::string what = cat("norm ", rows, "x", cols);
      const Floats x = numbers<float>(rows * cols, 1),
                   w = numbers<float>(cols, 2),
                   d = numbers<float>(rows * cols, 3);
      Floats out(x.size()), dx = numbers<float>(rows * cols, 4),
                            dw = numbers<float>(cols, 5);
      const OnGpu<float> gx = put(x), gw = put(w), gd = put(d), gout = put(out),
                         gdx = put(dx), gdw = put(dw),
                         partial = put(Floats(static_cast<size_t>(
                             gpu::partial_floats(rows, cols))));
      ops<float>().norm(out.data(), x.data(), w.data(), rows, cols, kEpsilon);
      gpu::norm(gpu(), gout.data(), gx.data(), gw.data(), rows, cols, kEpsilon);
      expect_near(gout.get(), out, what);
      ops<float>().norm_backward(dx.data(), dw.data(), x.data(), w.data(),
                                 d.data(), rows, cols, kEpsilon);
      gpu::norm_backward<float>(
          gpu(), {gdx.data(), gdw.data(), partial.data(), false}, gx.data(),
          gw.data(), gd.data(), rows, cols, kEpsilon);
      expect_near(gdx.get(), dx, what + " backward");
      expect_near(gdw.get(), dw, what + " backward, weight");
    }
}

TEST_F(CudaStages, SwiGlu) {
  for (const int64_t rows : kRows)
    for (const int64_t ffn : {8, 40, 3072}) {
      const std::string what = cat("swiglu ", rows, "x", ffn);
      Floats gate_up = numbers<float>(rows * 2 * ffn, 1),
             act = numbers<float>(rows * ffn, 2), out(act.size());
      const OnGpu<float> ggate_up = put(gate_up), gact = put(act),
                         gout = put(out);
      ops<float>().swiglu(out.data(), gate_up.data(), rows, ffn);
      gpu::swiglu(gpu(), gout.data(), ggate_up.data(), rows, ffn);
      expect_near(gout.get(), out, what);
      ops<float>().swiglu_backward(act.data(), gate_up.data(), rows, ffn);
      gpu::swiglu_backward(gpu(), gact.data(), ggate_up.data(), rows, ffn);
      expect_near(gact.get(), act, what + " backward, out");
      expect_near(ggate_up.get(), gate_up, what + " backward");
    }
}

TEST_F(CudaStages, Embedding) {
  constexpr int64_t kVocab = 19, kHidden = 40, kTokens = 101;
  const Floats table = numbers<float>(kVocab * kHidden, 1),
               d = numbers<float>(kTokens * kHidden, 2);
  Floats dtable = numbers<float>(kVocab * kHidden, 3);
  std::vector<int32_t> tokens, places, rows, begins;
  for (int32_t t = 0; t < kTokens; ++t) tokens.push_back(t * t % 17);
  for (int32_t row = 0; row < kVocab; ++row)
    for (int32_t t = 0; t < kTokens; ++t) {
      if (tokens[static_cast<size_t>(t)] != row) continue;
      if (rows.empty() || rows.back() != row) {
        rows.push_back(row);
        begins.push_back(static_cast<int32_t>(places.size()));
      }
      places.push_back(t);
    }
  begins.push_back(kTokens);
  const OnGpu<float> gtable = put(table), gd = put(d), gdtable = put(dtable),
                     gx = put(Floats(kTokens * kHidden));
  const OnGpu<int32_t> gtokens(gpu(), tokens), gplaces(gpu(), places),
      grows(gpu(), rows), gbegins(gpu(), begins);
  Floats x;
  for (int64_t t = 0; t < kTokens; ++t)
    for (int64_t j = 0; j < kHidden; ++j) {
      const auto at =
          static_cast<size_t>(tokens[static_cast<size_t>(t)] * kHidden + j);
      x.push_back(table[at]);
      dtable[at] += d[static_cast<size_t>(t * kHidden + j)];
    }
  gpu::embed<float>(gpu(), gx.data(), gtable.data(), gtokens.data(), kTokens,
                    kHidden);
  EXPECT_EQ(gx.get(), x);
  gpu::embed_backward<float>(gpu(), gdtable.data(), gd.data(),
                             {gplaces.data(), grows.data(), gbegins.data(),
                              static_cast<int64_t>(rows.size())},
                             kHidden);
  expect_near(gdtable.get(), dtable, "embedding backward");
}

TEST_F(CudaStages, Losses) {
  for (const int64_t vocab : {1, 7, 257, 8200, 40003}) {
    constexpr int64_t kTokens = 5;
    const int64_t stride = (vocab + 7) / 8 * 8;
    const std::string what = cat("losses of ", vocab);
    Floats logits = numbers<float>(kTokens * stride, 1);
    for (float& z : logits) z *= 20;
    const OnGpu<float> glogits = put(logits), gloss = put(Floats(kTokens));
    std::vector<int32_t> targets;
    Floats loss;
    for (int64_t t = 0; t < kTokens; ++t) {
      targets.push_back(static_cast<int32_t>(t * 31 % vocab));
      float* row = logits.data() + t * stride;
      double sum = 0;
      for (int64_t j = 0; j < vocab; ++j)
        sum += std::exp(static_cast<double>(row[j]));
      loss.push_back(static_cast<float>(
          std::log(sum) - static_cast<double>(row[targets.back()])));
      for (int64_t j = 0; j < stride; ++j) {
        const double p = std::exp(static_cast<double>(row[j])) / sum;
        row[j] =
            j >= vocab
                ? 0
                : static_cast<float>(0.1 * (p - (j == targets.back() ? 1 : 0)));
      }
    }
    const OnGpu<int32_t> gtargets(gpu(), targets);
    gpu::losses(gpu(), gloss.data(), glogits.data(), gtargets.data(), kTokens,
                vocab, stride, 0.1F);
    expect_near(gloss.get(), loss, what);
    expect_near(glogits.get(), logits, what + ", gradient");
  }
}

}  // namespace
}  // namespace canzona::model::cuda_stages_test
