// A team in one process, on any device: copies and plain loops take the place
// of the links between members. Sums are added by the tree, each member rounds
// a part of them, and everything else is distributed to all. An owner and its
// helper exchange a triangle and a factor.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "canzona/linalg/engine.h"
#include "canzona/rules/optimizer.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/strips.h"

namespace canzona::rules {

template <class Real>
class TestTeam {
 public:
  TestTeam(const Rule& rule, MatrixShape shape, int members, int head,
           const std::function<std::unique_ptr<Engine>()>& make_one)
      : shape_(shape),
        head_(static_cast<size_t>(head)),
        has_helper_(rule.facts().strips(shape).has_helper()) {
    for (int member = 0; member < members; ++member)
      members_.push_back(std::make_unique<Member>(
          rule, shape, TeamSeat{members, member, member == head}, make_one()));
  }

  std::vector<Real> transform(const std::vector<Real>& in, int64_t step = 1,
                              int phase = 0) {
    for (auto& m : members_) m->transform->begin({step, phase, m->states});
    take_pieces(in);
    normalize();
    const int segments = members_[0]->transform->segments();
    for (int s = 0; s < segments; ++s) {
      if (has_helper_) {
        with_helper(s);
        continue;
      }
      for (auto& m : members_) m->transform->sum(s, m->sums);
      round(s);
      Member& head = *members_[head_];
      head.transform->iterate(s, head.rounded, head.factor);
      const auto factor =
          head.read(head.factor, head.transform->factor_bytes());
      for (auto& m : members_) {
        if (m.get() != &head) m->write(m->factor, factor);
        m->transform->multiply(s, m->factor, m->out);
      }
    }
    return put_together();
  }

  int rounds_of_norms() const { return rounds_of_norms_; }
  const SharedTransform& member(size_t i) const {
    return *members_[i]->transform;
  }
  // A state of a member, in the order of RuleFacts::team_states.
  std::vector<Real> state(size_t member, size_t number) const {
    const Member& m = *members_[member];
    return m.memory.template get<Real>(m.states[number].data,
                                       m.facts[number].own.elements());
  }

 private:
  using Bytes = std::vector<std::byte>;

  struct Member {
    Member(const Rule& rule, MatrixShape shape, const TeamSeat& seat,
           std::unique_ptr<Engine> own)
        : engine(std::move(own)),
          memory(*engine),
          transform(rule.share(*engine, memory.arena(), shape, seat)) {
      const MatrixShape p = transform->piece();
      const DType dtype = DTypeOf<Real>::value;
      piece = memory.take(p.rows * p.cols, dtype);
      out = memory.take(p.rows * p.cols, dtype);
      Arena& arena = memory.arena();
      const int64_t elements = transform->sum_elements();
      parts = arena.take(transform->part_bytes());
      all_parts = arena.take(transform->part_bytes() * seat.members);
      sums = arena.take(elements * transform->bytes_per_sum());
      rounded = arena.take(elements * transform->bytes_per_rounded());
      factor = arena.take(transform->factor_bytes());
      facts = rule.facts().team_states(shape, seat.members, seat.member);
      for (const TeamState& kept : facts) {
        states.push_back(memory.take(kept.own.elements(), dtype));
        fill_initially(*engine, kept.own, states.back(), 1);
      }
    }
    Bytes read(const std::byte* from, int64_t bytes) const {
      return memory.template get<std::byte>(from, bytes);
    }
    void write(std::byte* to, const Bytes& bytes) {
      engine->upload(to, bytes.data(), std::ssize(bytes));
      engine->synchronize();
    }

    std::unique_ptr<Engine> engine;
    EngineMemory memory;
    std::unique_ptr<SharedTransform> transform;
    Run piece, out;
    std::byte *parts, *all_parts, *sums, *rounded, *factor;
    std::vector<TeamState> facts;
    std::vector<Run> states;
  };

  // A helper that gets nothing new, in a step without a refresh, has the old.
  void with_helper(int segment) {
    Member& owner = *members_[0];
    Member& helper = *members_[1];
    owner.transform->sum(segment, owner.sums);
    helper.write(helper.rounded,
                 owner.read(owner.sums, owner.transform->sum_elements() *
                                            owner.transform->bytes_per_sum()));
    for (auto& m : members_)
      m->transform->iterate(segment, m->rounded, m->factor);
    owner.write(owner.factor,
                helper.read(helper.factor, helper.transform->factor_bytes()));
    owner.transform->multiply(segment, owner.factor, owner.out);
  }

  bool tall() const { return shape_.rows > shape_.cols; }

  // Calls work(member, places) with the indices of its piece in the whole, in
  // order.
  template <class Work>
  void for_each_piece(const Work& work) {
    int64_t first = 0;
    for (auto& m : members_) {
      const MatrixShape p = m->transform->piece();
      std::vector<size_t> places;
      for (int64_t i = 0; i < p.rows; ++i)
        for (int64_t j = 0; j < p.cols; ++j)
          places.push_back(
              static_cast<size_t>(tall() ? (first + i) * shape_.cols + j
                                         : i * shape_.cols + first + j));
      first += tall() ? p.rows : p.cols;
      work(*m, places);
    }
    EXPECT_EQ(first, std::max(shape_.rows, shape_.cols));
  }

  void take_pieces(const std::vector<Real>& in) {
    for_each_piece([&](Member& m, const std::vector<size_t>& places) {
      std::vector<Real> piece;
      for (size_t at : places) piece.push_back(in[at]);
      m.memory.set(m.piece, piece);
      m.memory.set(m.out, std::vector<Real>(piece.size(), Real{-7}));
      m.engine->synchronize();
      m.transform->load(m.piece, m.parts);
    });
  }

  void normalize() {
    rounds_of_norms_ = 0;
    for (bool done = false; !done; ++rounds_of_norms_) {
      ASSERT_LT(rounds_of_norms_, 2);
      Bytes all;
      for (auto& m : members_) {
        const Bytes own = m->read(m->parts, m->transform->part_bytes());
        all.insert(all.end(), own.begin(), own.end());
      }
      size_t agree = 0;
      for (auto& m : members_) {
        m->write(m->all_parts, all);
        agree += m->transform->normalize(m->all_parts, m->parts);
      }
      ASSERT_TRUE(agree == 0 || agree == members_.size());
      done = agree != 0;
    }
  }

  std::vector<Real> total(size_t begin, size_t end) const {
    if (end - begin == 1) {
      const Member& m = *members_[begin];
      return m.memory.template get<Real>(m.sums, m.transform->sum_elements());
    }
    const size_t middle = (begin + end) / 2;
    std::vector<Real> left = total(begin, middle);
    const std::vector<Real> right = total(middle, end);
    for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }

  // Each member rounds a part of the total; the head gets all of it.
  void round(int segment) {
    const std::vector<Real> sum = total(0, members_.size());
    const auto members = static_cast<int64_t>(members_.size());
    Bytes all;
    for (int64_t i = 0; i < members; ++i) {
      const int64_t begin = std::ssize(sum) * i / members;
      const int64_t end = std::ssize(sum) * (i + 1) / members;
      Member& m = *members_[static_cast<size_t>(i)];
      m.memory.set({m.sums, DTypeOf<Real>::value},
                   std::vector<Real>(sum.begin() + begin, sum.begin() + end));
      m.engine->synchronize();
      m.transform->round(segment, m.sums, end - begin, m.rounded);
      const Bytes part =
          m.read(m.rounded, (end - begin) * m.transform->bytes_per_rounded());
      all.insert(all.end(), part.begin(), part.end());
    }
    members_[head_]->write(members_[head_]->rounded, all);
  }

  std::vector<Real> put_together() {
    std::vector<Real> out(static_cast<size_t>(shape_.rows * shape_.cols));
    for_each_piece([&](Member& m, const std::vector<size_t>& places) {
      const auto piece =
          m.memory.template get<Real>(m.out.data, std::ssize(places));
      for (size_t i = 0; i < places.size(); ++i) out[places[i]] = piece[i];
    });
    return out;
  }

  MatrixShape shape_;
  size_t head_;
  bool has_helper_;
  std::vector<std::unique_ptr<Member>> members_;
  int rounds_of_norms_ = 0;
};

template <class Real>
void expect_same_bits(const std::vector<Real>& a, const std::vector<Real>& b,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)), 0)
      << what;
}

}  // namespace canzona::rules
