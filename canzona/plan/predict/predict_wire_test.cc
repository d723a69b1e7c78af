// Bytes on the wire against an oracle that sends every message by itself.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>

#include "canzona/plan/predict/predict.h"
#include "canzona/plan/testing/test_toy_model.h"

namespace canzona::plan::predict_wire_test {
namespace {

using Wire = std::array<WireBytes, kNumCollectives>;

bool operator==(const WireBytes& a, const WireBytes& b) {
  return a.sent_intra == b.sent_intra && a.sent_inter == b.sent_inter &&
         a.received_intra == b.received_intra &&
         a.received_inter == b.received_inter;
}

// An oracle of who sends what to whom, message by message. Reads the plan's
// decisions (homes, owners, AdamW cuts) and nothing that is derived from them.
class Messages {
 public:
  explicit Messages(const Plan& plan)
      : plan_(plan), ranks_(static_cast<size_t>(plan.mesh.world())) {
    for (const Bucket& bucket : plan.parts[0].buckets) {
      for (int32_t t = 0; t < plan.mesh.tp; ++t) send_bucket(bucket, t);
    }
    for (size_t m = 0; m < plan.matrices.size(); ++m) send_matrix(m);
  }

  const Wire& of(size_t rank) const { return ranks_[rank]; }

 private:
  void send(int64_t from, int64_t to, Collective c, int64_t bytes) {
    if (from == to) return;
    const int64_t node = plan_.options.ranks_per_node;
    WireBytes& out = ranks_[static_cast<size_t>(from)][static_cast<size_t>(c)];
    WireBytes& in = ranks_[static_cast<size_t>(to)][static_cast<size_t>(c)];
    const bool near = from / node == to / node;
    (near ? out.sent_intra : out.sent_inter) += bytes;
    (near ? in.received_intra : in.received_inter) += bytes;
  }

  // The rank of plane t at home h of a buffer: tp, then cp, ep, dp, stages.
  int64_t rank(const Buffer& f, int64_t h, int64_t t) const {
    const Mesh& mesh = plan_.mesh;
    int64_t home = h;
    if (f.ep >= 0) {
      const int64_t d = h / mesh.cp, c = h % mesh.cp;
      home = (d * mesh.ep + f.ep) * mesh.cp + c;
    }
    return (f.stage * int64_t{mesh.dp} * mesh.cp * mesh.ep + home) * mesh.tp +
           t;
  }

  int64_t shard(int32_t tensor) const {
    const Tensor& t = plan_.model.tensors[static_cast<size_t>(tensor)];
    return t.elements() / (t.cut == Cut::kNone ? 1 : plan_.mesh.tp);
  }

  // Elements whose weights home h keeps, padded or not.
  std::vector<int64_t> runs(const Bucket& bucket) const {
    const Buffer& f =
        plan_.parts[0].buffers[static_cast<size_t>(bucket.buffer)];
    std::vector<int64_t> out(static_cast<size_t>(f.num_homes), 0);
    for (int32_t t : bucket.tensors) {
      const int32_t home = plan_.parts[0].home[static_cast<size_t>(t)];
      if (home != kEveryHome) out[static_cast<size_t>(home)] += shard(t);
    }
    if (plan_.traffic == Traffic::kPadded) {
      std::fill(out.begin(), out.end(),
                *std::max_element(out.begin(), out.end()));
    }
    for (size_t h = 0; h + 1 < bucket.adamw_cuts.size(); ++h) {
      out[h] += bucket.adamw_cuts[h + 1] - bucket.adamw_cuts[h];
    }
    return out;
  }

  // The homes of a buffer on one node, if they go in two levels; else 0.
  int64_t homes_inside(const Buffer& f, int32_t t) const {
    if (plan_.options.zero.reach == Reach::kDirect) return 0;
    const int64_t node = plan_.options.ranks_per_node;
    int64_t inside = 0;
    for (int64_t h = 0; h < f.num_homes; ++h)
      inside += rank(f, h, t) / node == rank(f, 0, t) / node ? 1 : 0;
    return inside == 1 || inside == f.num_homes ? 0 : inside;
  }

  // First those of a node among themselves, then each with those that stand
  // where it stands on other nodes; or the other way round.
  void send_in_legs(const Bucket& bucket, int32_t t, int64_t inside) {
    const Buffer& f =
        plan_.parts[0].buffers[static_cast<size_t>(bucket.buffer)];
    const int64_t weight = plan_.options.parameters == DType::kBf16 ? 2 : 4;
    const int64_t nodes = f.num_homes / inside;
    int64_t all = 0;
    for (int32_t tensor : bucket.tensors) all += shard(tensor);
    const std::vector<int64_t> kept = runs(bucket);
    const auto share = [](int64_t whole, int64_t i, int64_t n) {
      return whole * (i + 1) / n - whole * i / n;
    };
    const auto at_place = [&](int64_t h) {
      int64_t sum = 0;
      for (int64_t n = 0; n < nodes; ++n)
        sum += kept[static_cast<size_t>(n * inside + h % inside)];
      return sum;
    };
    const bool scattered = plan_.traffic == Traffic::kReduceScatter ||
                           plan_.traffic == Traffic::kPadded;
    const Collective published =
        scattered ? Collective::kAllGather : Collective::kBroadcast;
    for (int64_t x = 0; x < f.num_homes; ++x)
      for (int64_t y = 0; y < f.num_homes; ++y) {
        const int64_t from = rank(f, x, t), to = rank(f, y, t);
        const bool together = x / inside == y / inside;
        if (!together && x % inside != y % inside) continue;
        if (plan_.traffic != Traffic::kAllReduce)
          send(
              from, to, published,
              (together ? at_place(x) : kept[static_cast<size_t>(x)]) * weight);
        if (scattered) {
          send(from, to, Collective::kReduceScatter,
               (together ? at_place(y) : kept[static_cast<size_t>(y)]) * 4);
          continue;
        }
        const int64_t own = share(all, x % inside, inside);
        send(from, to, Collective::kAllReduce,
             (together ? share(all, y % inside, inside) + own
                       : share(own, y / inside, nodes) +
                             share(own, x / inside, nodes)) *
                 4);
      }
  }

  void send_bucket(const Bucket& bucket, int32_t t) {
    const Buffer& f =
        plan_.parts[0].buffers[static_cast<size_t>(bucket.buffer)];
    if (const int64_t inside = homes_inside(f, t); inside > 0)
      return send_in_legs(bucket, t, inside);
    const int64_t weight = plan_.options.parameters == DType::kBf16 ? 2 : 4;
    int64_t all = 0;
    for (int32_t tensor : bucket.tensors) all += shard(tensor);
    const std::vector<int64_t> kept = runs(bucket);
    for (int64_t x = 0; x < f.num_homes; ++x) {
      for (int64_t y = 0; y < f.num_homes; ++y) {
        const int64_t from = rank(f, x, t), to = rank(f, y, t);
        const auto slice = [&](int64_t h) {
          return all * (h + 1) / f.num_homes - all * h / f.num_homes;
        };
        const int64_t mine = kept[static_cast<size_t>(x)];
        const int64_t theirs = kept[static_cast<size_t>(y)];
        switch (plan_.traffic) {
          case Traffic::kReduceScatter:
          case Traffic::kPadded:
            send(from, to, Collective::kReduceScatter, theirs * 4);
            send(from, to, Collective::kAllGather, mine * weight);
            break;
          case Traffic::kBroadcast:
            send(from, to, Collective::kBroadcast, mine * weight);
            [[fallthrough]];
          case Traffic::kAllReduce:
            send(from, to, Collective::kAllReduce, slice(y) * 4);
            send(from, to, Collective::kAllReduce, slice(x) * 4);
        }
      }
    }
  }

  // Matrices are whole tensors here, so that every rank has an equal piece.
  void send_matrix(size_t m) {
    const int32_t tensor = plan_.matrices[m].tensor;
    const Tensor& t = plan_.model.tensors[static_cast<size_t>(tensor)];
    const Buffer& f = plan_.parts[0].buffer_of(tensor);
    const int32_t home = plan_.parts[0].home[static_cast<size_t>(tensor)];
    for (int64_t h = 0; h < f.num_homes; ++h) {
      if (home != kEveryHome && home != h) continue;
      for (int64_t x = 0; x < plan_.mesh.tp; ++x) {
        for (int64_t y = 0; y < plan_.mesh.tp; ++y) {
          const auto owners = plan_.parts[0].owners[m];
          const bool computes =
              owners.empty() ||
              std::find(owners.begin(), owners.end(), y) != owners.end();
          if (!computes) continue;
          const int64_t shard_rank = rank(f, h, x), owner = rank(f, h, y);
          const int64_t bytes = shard(tensor) * 4;
          if (t.cut != Cut::kNone) {
            send(shard_rank, owner, Collective::kGather, bytes);
          }
          if (!owners.empty()) {
            send(owner, shard_rank, Collective::kScatter, bytes);
          }
        }
      }
    }
  }

  const Plan& plan_;
  std::vector<Wire> ranks_;
};

struct WireCase {
  const char* strategy;
  const char* mesh;
};

void PrintTo(const WireCase& c, std::ostream* out) {
  *out << c.strategy << " on " << c.mesh;
}

class PredictedWire : public ::testing::TestWithParam<WireCase> {
 protected:
  Plan plan(int32_t ranks_per_node = 8, Reach reach = Reach::kDirect) const {
    const std::string mesh = GetParam().mesh;
    PlanOptions options = with_strategy(GetParam().strategy);
    options.bucket_elements = 700;
    options.ranks_per_node = ranks_per_node;
    options.zero.reach = reach;
    const Model model =
        mesh.find("ep=") == std::string::npos ? toy_model(4) : toy_moe(4, 4);
    return plan_of(model, mesh, options);
  }
};

std::vector<WireCase> wire_cases() {
  std::vector<WireCase> cases;
  for (const char* strategy : {"replicated", "layerwise", "start_offset",
                               "contiguous", "megatron", "balanced"}) {
    for (const char* mesh :
         {"dp=1", "dp=7", "dp=2,tp=2", "dp=3,tp=4", "dp=2,cp=2,tp=2,pp=2",
          "dp=2,tp=2,ep=2", "cp=3,tp=2,pp=2,ep=4", "dp=8", "dp=2,cp=2,ep=2",
          "dp=4,ep=2"}) {
      cases.push_back({strategy, mesh});
    }
  }
  return cases;
}
INSTANTIATE_TEST_SUITE_P(All, PredictedWire, ::testing::ValuesIn(wire_cases()));

void expect_all_messages(const Plan& p) {
  const std::vector<RankCost> ranks = predict(p);
  const Messages messages(p);
  for (size_t r = 0; r < ranks.size(); ++r) {
    for (size_t c = 0; c < kNumCollectives; ++c) {
      EXPECT_TRUE(ranks[r].wire[c] == messages.of(r)[c])
          << to_string(static_cast<Collective>(c)) << ", rank " << r << ", "
          << p.options.ranks_per_node << " ranks per node: sent "
          << ranks[r].wire[c].sent_intra << " + " << ranks[r].wire[c].sent_inter
          << ", expected " << messages.of(r)[c].sent_intra << " + "
          << messages.of(r)[c].sent_inter;
    }
  }
}

TEST_P(PredictedWire, IsTheSumOfAllMessages) {
  for (int32_t ranks_per_node : {1, 3, 4, 8, 1000})
    expect_all_messages(plan(ranks_per_node));
}

// `auto` goes in two levels wherever it may.
TEST_P(PredictedWire, IsTheSumOfAllMessagesOncePerNode) {
  for (int32_t ranks_per_node : {1, 2, 3, 4, 8, 16})
    expect_all_messages(plan(ranks_per_node, Reach::kAuto));
}

// These are the strategies whose groups have several ranks on several nodes.
TEST(PredictedWireOncePerNode, IsNotDirect) {
  int num_legs = 0;
  for (const WireCase& c : wire_cases())
    for (int32_t ranks_per_node : {2, 4, 8, 16}) {
      PlanOptions options = with_strategy(c.strategy);
      options.ranks_per_node = ranks_per_node;
      options.zero.reach = Reach::kAuto;
      const std::string mesh = c.mesh;
      const Plan p = plan_of(
          mesh.find("ep=") == std::string::npos ? toy_model(4) : toy_moe(4, 4),
          mesh, options);
      if (p.options.zero.reach == Reach::kPerNode) ++num_legs;
    }
  EXPECT_GE(num_legs, 6 * 4);
}

TEST_P(PredictedWire, WhatIsSentIsReceived) {
  const std::vector<RankCost> ranks = predict(plan(3));
  for (size_t c = 0; c < kNumCollectives; ++c) {
    WireBytes sum;
    for (const RankCost& rank : ranks) {
      sum.sent_intra += rank.wire[c].sent_intra;
      sum.sent_inter += rank.wire[c].sent_inter;
      sum.received_intra += rank.wire[c].received_intra;
      sum.received_inter += rank.wire[c].received_inter;
    }
    EXPECT_EQ(sum.sent_intra, sum.received_intra);
    EXPECT_EQ(sum.sent_inter, sum.received_inter);
  }
}

TEST_P(PredictedWire, BytesSentAreThoseOfAllCollectives) {
  for (const RankCost& rank : predict(plan())) {
    int64_t sum = 0;
    for (const WireBytes& w : rank.wire) sum += w.sent_intra + w.sent_inter;
    EXPECT_EQ(rank.bytes_sent(), sum);
  }
}

}  // namespace
}  // namespace canzona::plan::predict_wire_test
