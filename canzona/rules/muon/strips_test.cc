// Muon with strips: against an iteration that is written out here, and by teams
// against one rank alone.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>

#include "canzona/rules/muon/facts.h"
#include "canzona/rules/muon/test_stress.h"
#include "canzona/rules/rule.h"
#include "canzona/rules/shared_transform.h"

namespace canzona::muon_strips_test {
namespace {

constexpr const char* kForms[] = {"standard", "symmetric", "gram"};

RuleOptions on_cpu(const char* form, const char* precision, int strips,
                   const char* norm = "frobenius") {
  return {{"device", "cpu"},
          {"newton_schulz", form},
          {"precision", precision},
          {"normalization", norm},
          {"strips", std::to_string(strips)},
          {"unsafe", "on"}};
}

template <class Real>
constexpr DType kTypeOf = sizeof(Real) == 8 ? DType::kFp64 : DType::kFp32;

template <class Real>
std::vector<Real> transformed(Engine& engine, const Rule& rule,
                              MatrixShape shape, const std::vector<Real>& in) {
  std::vector<Real> out(in.size(), Real{-7});
  const Dims dims{shape.rows, shape.cols};
  const ConstRun fields[] = {run_of(in.data())};
  rule.transform(engine, {},
                 {.dims = dims, .fields = fields, .out = run_of(out.data())});
  return out;
}

template <class Real>
std::vector<Real> random_numbers(int64_t count, uint64_t seed) {
  Stream s(seed);
  std::vector<Real> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<Real>(s.normal()));
  return values;
}

// ---- one rank, against plain loops ----

// R = XXᵀ by strips: each one sum, then halves of the strips added, in Real.
template <class Real>
class PlainStrips {
 public:
  PlainStrips(int64_t m, int64_t n, int strips) : m_(m), n_(n) {
    // The multiples of 64 nearest to equal parts, found by looking at all.
    borders_.push_back(0);
    for (int i = 1; i < strips; ++i) {
      const double exact = static_cast<double>(n) * i / strips;
      int64_t best = 0;
      for (int64_t b = 0; b <= n; b += 64)
        if (std::fabs(double(b) - exact) <= std::fabs(double(best) - exact))
          best = b;
      borders_.push_back(best);
    }
    borders_.push_back(n);
  }

  std::vector<Real> gram(const std::vector<Real>& x) const {
    return gram(x, 0, borders_.size() - 1);
  }
  double squares(const std::vector<Real>& x) const {
    return squares(x, 0, borders_.size() - 1);
  }

 private:
  std::vector<Real> gram(const std::vector<Real>& x, size_t begin,
                         size_t end) const {
    if (end - begin > 1) {
      const size_t middle = (begin + end) / 2;
      std::vector<Real> sum = gram(x, begin, middle);
      const std::vector<Real> right = gram(x, middle, end);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += right[i];
      return sum;
    }
    std::vector<Real> r(static_cast<size_t>(m_ * m_));
    for (int64_t i = 0; i < m_; ++i)
      for (int64_t j = 0; j < m_; ++j) {
        Real sum = 0;
        for (int64_t k = borders_[begin]; k < borders_[end]; ++k)
          sum += x[size_t(i * n_ + k)] * x[size_t(j * n_ + k)];
        r[size_t(i * m_ + j)] = sum;
      }
    return r;
  }
  double squares(const std::vector<Real>& x, size_t begin, size_t end) const {
    if (end - begin > 1) {
      const size_t middle = (begin + end) / 2;
      return squares(x, begin, middle) + squares(x, middle, end);
    }
    double sum = 0;
    for (int64_t i = 0; i < m_; ++i)
      for (int64_t k = borders_[begin]; k < borders_[end]; ++k)
        sum += double(x[size_t(i * n_ + k)]) * double(x[size_t(i * n_ + k)]);
    return sum;
  }

  int64_t m_, n_;
  std::vector<int64_t> borders_;
};

template <class Real>
std::vector<Real> plain_product(const std::vector<Real>& a,
                                const std::vector<Real>& b, int64_t m,
                                int64_t n) {
  std::vector<Real> c(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < m; ++k)
      for (int64_t j = 0; j < n; ++j)
        c[size_t(i * n + j)] += a[size_t(i * m + k)] * b[size_t(k * n + j)];
  return c;
}

// A wide matrix, step by step: X <- aX + bRX + cR²X.
template <class Real>
std::vector<Real> plain_steps(std::vector<Real> x, int64_t m, int64_t n,
                              int strips,
                              const std::vector<Coefficients>& steps) {
  const PlainStrips<Real> sums(m, n, strips);
  const double norm = std::sqrt(sums.squares(x));
  if (norm > 0)
    for (Real& v : x) v = static_cast<Real>(v / norm);
  for (const auto& [a, b, c] : steps) {
    const std::vector<Real> r = sums.gram(x);
    const std::vector<Real> rx = plain_product(r, x, m, n);
    const std::vector<Real> rrx = plain_product(r, rx, m, n);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<Real>(a * x[i] + b * rx[i] + c * rrx[i]);
  }
  return x;
}

template <class Real>
std::vector<Real> turned(const std::vector<Real>& a, int64_t rows,
                         int64_t cols) {
  std::vector<Real> t(a.size());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < cols; ++j)
      t[size_t(j * rows + i)] = a[size_t(i * cols + j)];
  return t;
}

template <class Real>
double relative_distance(const std::vector<Real>& a,
                         const std::vector<Real>& b) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += std::pow(double(a[i]) - double(b[i]), 2);
    size += std::pow(double(b[i]), 2);
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

const MatrixShape kShapes[] = {{40, 512}, {24, 600}, {65, 777},
                               {1, 530},  {3, 1000}, {130, 200}};

template <class Real>
void expect_as_plain(const char* precision, double tolerance) {
  const auto engine = make_cpu_engine();
  for (const MatrixShape shape : kShapes)
    for (int strips : {1, 2, 4, 8}) {
      const auto [m, n] = shape;
      const MuonFacts facts(on_cpu("gram", precision, strips));
      const auto in = random_numbers<Real>(m * n, 5);
      const auto want = plain_steps(in, m, n, facts.strips(shape).strips,
                                    facts.coefficients());
      for (const char* form : kForms) {
        const auto rule =
            make_rule("muon", on_cpu(form, precision, strips), kTypeOf<Real>);
        const auto wide = transformed(*engine, *rule, shape, in);
        EXPECT_LT(relative_distance(wide, want), tolerance)
            << precision << " " << form << " " << to_string(shape) << " "
            << strips;
        const auto tall = transformed(*engine, *rule, {n, m}, turned(in, m, n));
        EXPECT_LT(relative_distance(turned(tall, n, m), want), tolerance)
            << precision << " " << form << " " << to_string(shape) << " "
            << strips << ", tall";
      }
    }
}

// Random numbers condition R well, so what is left is rounding.
TEST(MuonStrips, GiveWhatPlainLoopsGive) {
  expect_as_plain<double>("fp64", 1e-12);
  expect_as_plain<float>("fp32", 1e-4);
  expect_as_plain<float>("bf16", 6e-2);
}

TEST(MuonStrips, LeaveZerosAsTheyAre) {
  const auto engine = make_cpu_engine();
  for (const char* precision : {"fp32", "bf16"})
    for (int strips : {1, 2, 4, 8})
      for (const char* form : kForms) {
        const auto rule =
            make_rule("muon", on_cpu(form, precision, strips), DType::kFp32);
        const std::vector<float> zeros(20 * 512);
        EXPECT_EQ(transformed(*engine, *rule, {20, 512}, zeros), zeros);
        // All but one strip.
        std::vector<float> one(20 * 512);
        for (int64_t i = 0; i < 20; ++i) one[size_t(i * 512 + 511)] = 1;
        const auto out = transformed(*engine, *rule, {20, 512}, one);
        for (int64_t i = 0; i < 20; ++i) {
          EXPECT_EQ(out[size_t(i * 512)], 0);
          EXPECT_NE(out[size_t(i * 512 + 511)], 0);
        }
      }
}

// ---- teams, against one rank ----

template <class Real>
struct Member {
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Arena::Scope> scope;
  std::unique_ptr<SharedTransform> transform;
  std::vector<Real> piece, out;
  std::vector<std::byte> parts, sums, rounded, factor;
};

// The elements of a member's piece in the whole, in order.
std::vector<int64_t> places_of(MatrixShape whole, MatrixShape piece,
                               int64_t first) {
  const bool tall = whole.rows > whole.cols;
  std::vector<int64_t> places;
  for (int64_t i = 0; i < piece.rows; ++i)
    for (int64_t j = 0; j < piece.cols; ++j)
      places.push_back(tall ? (first + i) * whole.cols + j
                            : i * whole.cols + first + j);
  return places;
}

// What links do: sums meet by the tree, the rest is handed round.
template <class Real>
class Team {
 public:
  Team(const Rule& rule, MatrixShape shape, int members, int head,
       Bf16Kernel kernel)
      : shape_(shape), head_(static_cast<size_t>(head)) {
    for (int place = 0; place < members; ++place) {
      Member<Real> m;
      m.engine = make_cpu_engine(kernel);
      m.arena = std::make_unique<Arena>();
      m.scope = std::make_unique<Arena::Scope>(*m.arena);
      m.transform = rule.share(*m.engine, *m.arena, shape,
                               {members, place, place == head});
      const SharedTransform& t = *m.transform;
      const auto elements = static_cast<size_t>(t.sum_elements());
      m.parts.resize(size_t(t.part_bytes()));
      m.sums.resize(elements * size_t(t.bytes_per_sum()));
      m.rounded.resize(elements * size_t(t.bytes_per_rounded()));
      m.factor.resize(size_t(t.factor_bytes()));
      members_.push_back(std::move(m));
    }
  }

  std::vector<Real> transform(const std::vector<Real>& in) {
    take_pieces(in);
    normalize();
    const int segments = members_[0].transform->segments();
    for (int s = 0; s < segments; ++s) {
      for (auto& m : members_) m.transform->sum(s, m.sums.data());
      add_sums(0, members_.size());
      round_total();
      Member<Real>& head = members_[head_];
      head.transform->iterate(s, head.rounded.data(), head.factor.data());
      for (auto& m : members_) {
        m.factor = head.factor;
        m.transform->multiply(s, m.factor.data(), run_of(m.out.data()));
      }
    }
    return put_together();
  }
  int rounds_of_norms() const { return rounds_of_norms_; }
  const SharedTransform& member(size_t i) const {
    return *members_[i].transform;
  }

 private:
  void take_pieces(const std::vector<Real>& in) {
    int64_t first = 0;
    for (auto& m : members_) {
      const MatrixShape piece = m.transform->piece();
      m.piece.clear();
      for (int64_t at : places_of(shape_, piece, first))
        m.piece.push_back(in[size_t(at)]);
      m.out.assign(m.piece.size(), Real{-7});
      first += shape_.rows > shape_.cols ? piece.rows : piece.cols;
      m.transform->load(run_of(std::as_const(m.piece).data()), m.parts.data());
    }
  }

  void normalize() {
    rounds_of_norms_ = 0;
    for (bool done = false; !done; ++rounds_of_norms_) {
      ASSERT_LT(rounds_of_norms_, 2);
      std::vector<std::byte> all;
      for (auto& m : members_)
        all.insert(all.end(), m.parts.begin(), m.parts.end());
      size_t agree = 0;
      for (auto& m : members_)
        agree += m.transform->normalize(all.data(), m.parts.data());
      ASSERT_TRUE(agree == 0 || agree == members_.size());
      done = agree != 0;
    }
  }

  // Into the first of them.
  void add_sums(size_t begin, size_t end) {
    if (end - begin == 1) return;
    const size_t middle = (begin + end) / 2;
    add_sums(begin, middle);
    add_sums(middle, end);
    auto* left = reinterpret_cast<Real*>(members_[begin].sums.data());
    const auto* right =
        reinterpret_cast<const Real*>(members_[middle].sums.data());
    for (size_t i = 0; i < members_[begin].sums.size() / sizeof(Real); ++i)
      left[i] += right[i];
  }

  // Each member rounds a piece of the total; the head gets all.
  void round_total() {
    const std::vector<std::byte> total = members_[0].sums;
    const int64_t elements = members_[0].transform->sum_elements();
    const auto members = static_cast<int64_t>(members_.size());
    for (int64_t i = 0; i < members; ++i) {
      const int64_t begin = elements * i / members;
      const int64_t end = elements * (i + 1) / members;
      SharedTransform& t = *members_[size_t(i)].transform;
      t.round(total.data() + begin * t.bytes_per_sum(), end - begin,
              members_[head_].rounded.data() + begin * t.bytes_per_rounded());
    }
  }

  std::vector<Real> put_together() const {
    std::vector<Real> out(size_t(shape_.rows * shape_.cols));
    int64_t first = 0;
    for (const auto& m : members_) {
      const MatrixShape piece = m.transform->piece();
      const std::vector<int64_t> places = places_of(shape_, piece, first);
      for (size_t i = 0; i < places.size(); ++i)
        out[size_t(places[i])] = m.out[i];
      first += shape_.rows > shape_.cols ? piece.rows : piece.cols;
    }
    return out;
  }

  MatrixShape shape_;
  size_t head_;
  std::vector<Member<Real>> members_;
  int rounds_of_norms_ = 0;
};

template <class Real>
void expect_same_bits(const std::vector<Real>& a, const std::vector<Real>& b,
                      const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  ASSERT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(Real)), 0)
      << what;
}

template <class Real>
void expect_teams_as_one(const char* precision, Bf16Kernel kernel) {
  const auto engine = make_cpu_engine(kernel);
  for (const MatrixShape shape : {MatrixShape{40, 512}, MatrixShape{600, 24},
                                  MatrixShape{65, 777}, MatrixShape{1, 530}})
    for (const char* norm : {"frobenius", "schatten4"})
      for (int strips : {2, 4, 8})
        for (const char* form : kForms) {
          const auto rule = make_rule(
              "muon", on_cpu(form, precision, strips, norm), kTypeOf<Real>);
          const StripFacts facts = rule->facts().strips(shape);
          ASSERT_EQ(facts.strips, strips);
          const auto first = random_numbers<Real>(shape.rows * shape.cols, 5);
          const auto second = random_numbers<Real>(shape.rows * shape.cols, 6);
          for (int members = 1; members <= strips; members *= 2) {
            const std::string what = std::string(precision) + " " + form + " " +
                                     norm + " " + to_string(shape) +
                                     " strips " + std::to_string(strips) +
                                     " members " + std::to_string(members);
            Team<Real> team(*rule, shape, members, members / 2, kernel);
            EXPECT_EQ(team.member(0).segments(), facts.segments);
            EXPECT_EQ(team.member(0).sum_elements(), facts.sum_elements);
            EXPECT_EQ(team.member(0).factor_bytes(), facts.factor_bytes);
            // Twice: a transform may be used again.
            for (const auto& in : {first, second}) {
              expect_same_bits(team.transform(in),
                               transformed(*engine, *rule, shape, in), what);
              EXPECT_EQ(team.rounds_of_norms(), 1);
            }
          }
        }
}

TEST(MuonTeams, HaveTheBitsOfOneRankInBf16) {
  for (Bf16Kernel kernel : usable_bf16_kernels())
    expect_teams_as_one<float>("bf16", kernel);
}

TEST(MuonTeams, HaveTheBitsOfOneRankInFp32) {
  expect_teams_as_one<float>("fp32", Bf16Kernel::kPortable);
}

TEST(MuonTeams, HaveTheBitsOfOneRankInFp64) {
  expect_teams_as_one<double>("fp64", Bf16Kernel::kPortable);
}

// Very large and very small numbers are brought near 1 on all members.
TEST(MuonTeams, AgreeOnNumbersOfEverySize) {
  const auto engine = make_cpu_engine();
  const MatrixShape shape{20, 512};
  const auto check = [&](auto real, const char* precision, double size,
                         int rounds) {
    using Real = decltype(real);
    const auto rule =
        make_rule("muon", on_cpu("gram", precision, 8), kTypeOf<Real>);
    auto in = random_numbers<Real>(20 * 512, 3);
    for (Real& v : in) v = static_cast<Real>(v * size);
    Team<Real> team(*rule, shape, 4, 1, usable_bf16_kernels().front());
    expect_same_bits(team.transform(in), transformed(*engine, *rule, shape, in),
                     precision);
    EXPECT_EQ(team.rounds_of_norms(), rounds) << precision << " " << size;
  };
  for (const char* precision : {"fp32", "bf16"})
    for (double size : {0.0, 1e-36, 1e-3, 1.0, 1e30})
      check(float{}, precision, size, size == 1e-36 || size == 1e30 ? 2 : 1);
  for (double size : {0.0, 1e-290, 1e-160, 1.0, 1e160, 1e290})
    check(double{}, "fp64", size, size == 0 || size == 1 ? 1 : 2);
}

TEST(MuonTeams, NoneWithOneStripAndNoneOfARuleThatSaysNothing) {
  const auto engine = make_cpu_engine();
  Arena arena;
  const Arena::Scope scope(arena);
  const auto muon = make_rule("muon", on_cpu("gram", "bf16", 1), DType::kFp32);
  EXPECT_EQ(muon->share(*engine, arena, {40, 512}, {2, 0, true}), nullptr);
  const auto short_side =
      make_rule("muon", on_cpu("gram", "bf16", 8), DType::kFp32);
  EXPECT_EQ(short_side->share(*engine, arena, {40, 127}, {2, 0, true}),
            nullptr);
  const auto soap = make_rule("soap", {}, DType::kFp32);
  EXPECT_EQ(soap->share(*engine, arena, {40, 512}, {2, 0, true}), nullptr);
  EXPECT_EQ(soap->facts().strips({40, 512}), StripFacts{});
}

}  // namespace
}  // namespace canzona::muon_strips_test
