#include "canzona/plan/options.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "canzona/base/error.h"

namespace canzona::plan::plan_options_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(PlanOptions, HaveTheDocumentedDefaults) {
  const PlanOptions options;
  EXPECT_EQ(options.strategy, "balanced");
  EXPECT_EQ(options.micro_groups, "");
  EXPECT_EQ(options.bucket_elements, kAutoBucketElements);
  EXPECT_EQ(options.capacity_bytes, 1'677'721'600);  // 1600 MiB
  EXPECT_EQ(options.memory_cap_bytes, 0);
  EXPECT_EQ(options.ranks_per_node, 8);
  EXPECT_FALSE(options.alpha.has_value());
  EXPECT_FALSE(options.weight.has_value());
  EXPECT_TRUE(options.links.nominal);
  EXPECT_NO_THROW(check_options(options));
}

TEST(PlanOptions, WordsReadBack) {
  for (Weight weight : {Weight::kNumel, Weight::kFlops, Weight::kCost}) {
    EXPECT_EQ(parse_weight(to_string(weight)), weight);
  }
  EXPECT_EQ(to_string(Weight::kNumel), "numel");
  EXPECT_EQ(parse_weight("cost"), Weight::kCost);
  for (DType d : {DType::kBf16, DType::kFp32}) {
    EXPECT_EQ(parse_dtype(to_string(d), "parameters"), d);
  }
  EXPECT_EQ(to_string(DType::kFp32), "fp32");
}

TEST(PlanOptions, UnknownWordsNameTheNearest) {
  EXPECT_THAT(
      [] { parse_weight("flop"); },
      ThrowsMessage<UsageError>(AllOf(HasSubstr("weight"), HasSubstr("'flop'"),
                                      HasSubstr("numel|flops|cost"),
                                      HasSubstr("did you mean 'flops'?"))));
  EXPECT_THROW(parse_weight(""), UsageError);
  EXPECT_THROW(parse_weight("Cost"), UsageError);
  EXPECT_THAT([] { parse_dtype("bf15", "parameters"); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("parameters"), HasSubstr("'bf15'"),
                        HasSubstr("did you mean 'bf16'?"))));
}

TEST(PlanOptions, ParametersAreBf16OrFp32) {
  PlanOptions options;
  options.parameters = DType::kFp16;
  EXPECT_THAT([&] { check_options(options); },
              ThrowsMessage<UsageError>(AllOf(HasSubstr("parameters"),
                                              HasSubstr("'fp16'"),
                                              HasSubstr("bf16|fp32"))));
  EXPECT_NO_THROW(check_dtype(DType::kBf16, "wire"));
  EXPECT_THROW(check_dtype(DType::kFp64, "wire"), UsageError);
}

TEST(Links, AreReadWithTheirUnits) {
  const Links links = parse_links("intra=900GB/s,inter=400Gb/s,latency=5us");
  EXPECT_EQ(links.intra_bytes_per_second, 900e9);
  EXPECT_EQ(links.inter_bytes_per_second, 50e9);
  EXPECT_DOUBLE_EQ(links.latency_seconds, 5e-6);
  EXPECT_FALSE(links.nominal);
}

TEST(Links, KeepWhatIsNotNamed) {
  const Links links = parse_links("latency=0s");
  EXPECT_EQ(links.intra_bytes_per_second, Links().intra_bytes_per_second);
  EXPECT_EQ(links.inter_bytes_per_second, Links().inter_bytes_per_second);
  EXPECT_EQ(links.latency_seconds, 0);
  EXPECT_FALSE(links.nominal);
}

TEST(Links, HaveOneLatencyUnlessNodesHaveTheirOwn) {
  const Links one = parse_links("latency=5us");
  EXPECT_DOUBLE_EQ(one.latency(/*near=*/true), 5e-6);
  const Links two = parse_links("latency=5us,intra_latency=1us");
  EXPECT_DOUBLE_EQ(two.latency(/*near=*/true), 1e-6);
  EXPECT_DOUBLE_EQ(two.latency(/*near=*/false), 5e-6);
}

// Three messages of a tenth of a latency each, and their bytes.
TEST(Links, HoldPortsForAnOverheadAndBytes) {
  const Links links = parse_links("intra=4GB/s,inter=2GB/s,latency=10us");
  EXPECT_DOUBLE_EQ(links.port_seconds(/*near=*/true, 8000, 3), 3e-6 + 2e-6);
  EXPECT_DOUBLE_EQ(links.port_seconds(/*near=*/false, 8000), 1e-6 + 4e-6);
}

struct Refused {
  const char* text;
  const char* says;
};

class RefusedLinks : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedLinks, NamesThePart) {
  EXPECT_THAT([] { parse_links(GetParam().text); },
              ThrowsMessage<UsageError>(
                  AllOf(HasSubstr("link"), HasSubstr(GetParam().says))))
      << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    All, RefusedLinks,
    ::testing::Values(Refused{"", "expected intra, inter, latency"},
                      Refused{"intra", "link intra"},
                      Refused{"intra=", "link intra"},
                      Refused{"inter=0GB/s", "link inter"},
                      Refused{"inter=-1GB/s", "link inter"},
                      Refused{"intra=fast", "'fast'"},
                      Refused{"latency=5GB/s", "link latency"},
                      Refused{"latency=-1us", "link latency"},
                      Refused{"intra_latency=-1us", "link intra_latency"},
                      Refused{"intra=1GB/s,", "unknown part ''"},
                      Refused{"inta=1GB/s", "did you mean 'intra'?"}));

TEST(Links, ComeOnceEach) {
  EXPECT_THAT([] { parse_links("intra=1GB/s,intra=2GB/s"); },
              ThrowsMessage<UsageError>(HasSubstr("intra")));
}

PlanOptions with_alpha(double alpha) {
  PlanOptions options;
  options.alpha = alpha;
  return options;
}

TEST(PlanOptions, AlphaIsAShare) {
  for (double alpha : {0.0, 0.5, 1.0}) {
    EXPECT_NO_THROW(check_options(with_alpha(alpha)));
  }
  for (double alpha :
       {-0.1, 1.1, std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_THAT([&] { check_options(with_alpha(alpha)); },
                ThrowsMessage<UsageError>(
                    AllOf(HasSubstr("alpha"), HasSubstr("0 to 1"))));
  }
}

// Returns the error for options of which one is out of range.
template <class Value>
std::string refusal(Value PlanOptions::*member, Value value) {
  PlanOptions options;
  options.*member = value;
  try {
    check_options(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(PlanOptions, SizesHaveRanges) {
  EXPECT_EQ(refusal(&PlanOptions::bucket_elements, int64_t{1}), "");
  EXPECT_EQ(refusal(&PlanOptions::bucket_elements, kAutoBucketElements), "");
  EXPECT_THAT(refusal(&PlanOptions::bucket_elements, int64_t{0}),
              HasSubstr("bucket-elements 0"));
  EXPECT_THAT(refusal(&PlanOptions::bucket_elements, int64_t{-2}),
              HasSubstr("bucket-elements -2"));
  EXPECT_EQ(refusal(&PlanOptions::capacity_bytes, int64_t{0}), "");
  EXPECT_THAT(refusal(&PlanOptions::capacity_bytes, int64_t{-1}),
              HasSubstr("capacity"));
  EXPECT_EQ(refusal(&PlanOptions::memory_cap_bytes, int64_t{1}), "");
  EXPECT_THAT(refusal(&PlanOptions::memory_cap_bytes, int64_t{-1}),
              HasSubstr("memory-cap"));
  EXPECT_EQ(refusal(&PlanOptions::ranks_per_node, 1), "");
  EXPECT_THAT(refusal(&PlanOptions::ranks_per_node, 0),
              HasSubstr("ranks-per-node 0"));
}

}  // namespace
}  // namespace canzona::plan::plan_options_test
