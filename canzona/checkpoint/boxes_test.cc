#include "canzona/checkpoint/boxes.h"

#include <gmock/gmock.h>

#include <cstring>
#include <limits>

#include "canzona/base/error.h"
#include "canzona/base/random.h"

namespace canzona::checkpoint::boxes_test {
namespace {

using ::testing::HasSubstr;

// Random numbers of one test.
class Draws {
 public:
  explicit Draws(uint64_t seed) : seed_(seed) {}
  // From low to high, both included.
  int64_t from_to(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(bits_at(seed_, next_++) %
                                      static_cast<uint64_t>(high - low + 1));
  }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

std::vector<int64_t> random_shape(Draws& draw) {
  std::vector<int64_t> shape(static_cast<size_t>(draw.from_to(0, 3)));
  constexpr std::array<int64_t, 7> kDims = {0, 1, 2, 3, 5, 7, 4};
  for (int64_t& dim : shape)
    dim = kDims[static_cast<size_t>(
        draw.from_to(draw.from_to(0, 9) == 0 ? 0 : 1, 6))];
  return shape;
}

// Cuts boxes in two repeatedly.
std::vector<Box> random_tiling(const std::vector<int64_t>& shape, Draws& draw) {
  for (const int64_t dim : shape)
    if (dim == 0) return {};
  std::vector<Box> boxes = {{std::vector<int64_t>(shape.size(), 0), shape}};
  for (int64_t cuts = draw.from_to(0, 8); cuts > 0 && !shape.empty(); --cuts) {
    const auto b = static_cast<size_t>(draw.from_to(0, std::ssize(boxes) - 1));
    const auto d = static_cast<size_t>(draw.from_to(0, std::ssize(shape) - 1));
    if (boxes[b].count[d] < 2) continue;
    const int64_t at = draw.from_to(1, boxes[b].count[d] - 1);
    Box rest = boxes[b];
    rest.first[d] += at;
    rest.count[d] -= at;
    boxes[b].count[d] = at;
    boxes.push_back(rest);
  }
  return boxes;
}

// Calls use(index, linear) for every element.
template <class Use>
void for_each_element(const std::vector<int64_t>& shape, const Use& use) {
  int64_t count = 1;
  for (const int64_t dim : shape) count *= dim;
  std::vector<int64_t> at(shape.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d])
      at[d] = rest % shape[d];
    use(at, i);
  }
}

bool holds(const Box& box, const std::vector<int64_t>& at) {
  for (size_t d = 0; d < at.size(); ++d)
    if (at[d] < box.first[d] || at[d] >= box.first[d] + box.count[d])
      return false;
  return true;
}

bool covers_once(const std::vector<int64_t>& shape,
                 const std::vector<Box>& boxes) {
  bool once = true;
  for_each_element(shape, [&](const std::vector<int64_t>& at, int64_t) {
    int times = 0;
    for (const Box& box : boxes) times += holds(box, at) ? 1 : 0;
    once = once && times == 1;
  });
  return once;
}

// Changes something; the result may still be right by chance.
void disturb(std::vector<Box>& boxes, const std::vector<int64_t>& shape,
             Draws& draw) {
  if (boxes.empty()) return;
  const auto b = static_cast<size_t>(draw.from_to(0, std::ssize(boxes) - 1));
  const int64_t what = draw.from_to(0, 3);
  if (what == 0) boxes.erase(boxes.begin() + static_cast<std::ptrdiff_t>(b));
  if (what == 1) boxes.push_back(boxes[b]);
  if (what < 2 || shape.empty()) return;
  const auto d = static_cast<size_t>(draw.from_to(0, std::ssize(shape) - 1));
  const int64_t move = draw.from_to(0, 1) * 2 - 1;
  Box& box = boxes[b];
  (what == 2 ? box.first : box.count)[d] += move;
  const bool fits = box.first[d] >= 0 && box.count[d] >= 1 &&
                    box.first[d] + box.count[d] <= shape[d];
  if (!fits) (what == 2 ? box.first : box.count)[d] -= move;
}

bool tiles(const LogicalTensor& tensor, const std::vector<Box>& boxes) {
  try {
    check_tiling(tensor, boxes, "test");
    return true;
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("'t'"));
    return false;
  }
}

TEST(Boxes, S4_TilingsAreToldFromOthers) {
  Draws draw(1);
  int64_t good = 0;
  int64_t bad = 0;
  for (int i = 0; i < 10'000; ++i) {
    const LogicalTensor tensor{"t", DType::kFp32, random_shape(draw)};
    std::vector<Box> boxes = random_tiling(tensor.shape, draw);
    for (int64_t n = draw.from_to(0, 2); n > 0; --n)
      disturb(boxes, tensor.shape, draw);
    const bool expected = covers_once(tensor.shape, boxes);
    ASSERT_EQ(tiles(tensor, boxes), expected) << "case " << i;
    ++(expected ? good : bad);
  }
  EXPECT_GT(good, 3000);
  EXPECT_GT(bad, 3000);
}

TEST(Boxes, S4_HolesAndOverlapsAreNamed) {
  const LogicalTensor w{"t", DType::kFp32, {4, 6}};
  const auto problem = [&](const std::vector<Box>& boxes) -> std::string {
    try {
      check_tiling(w, boxes, "manifest.json");
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(problem({{{0, 0}, {4, 6}}}), "");
  EXPECT_EQ(problem({{{0, 0}, {2, 6}}, {{3, 0}, {1, 6}}}),
            "manifest.json: tensor 't' [4, 6]: element [2, 0] is not in any of "
            "the 2 boxes: a hole");
  EXPECT_EQ(problem({{{0, 0}, {3, 6}}, {{2, 0}, {2, 6}}}),
            "manifest.json: tensor 't' [4, 6]: element [2, 0] is in 2 boxes, "
            "which overlap: [0:3, 0:6] and [2:4, 0:6]");
  EXPECT_THAT(problem({}), HasSubstr("a hole"));
}

TEST(Boxes, ManyBoxesAreChecked) {
  const int64_t side = 200;
  const LogicalTensor tensor{"t", DType::kFp32, {3 * side, 5 * side, 7}};
  std::vector<Box> boxes;
  for (int64_t i = 0; i < side; ++i)
    for (int64_t j = 0; j < side; ++j)
      boxes.push_back({{3 * i, 5 * j, 0}, {3, 5, 7}});
  EXPECT_TRUE(tiles(tensor, boxes));
  std::swap(boxes[7].first[0], boxes[8].first[1]);
  boxes[7].first = boxes[11].first;
  EXPECT_FALSE(tiles(tensor, boxes));
  boxes.assign(300'000, {{0, 0, 0}, {1, 1, 7}});
  EXPECT_FALSE(tiles(tensor, boxes));
}

TEST(Boxes, EveryEdgeValueOfADimensionIsRefusedOrTaken) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  constexpr int64_t kTop = int64_t{1} << 40;
  struct Case {
    std::vector<int64_t> shape;
    bool good;
  };
  const std::vector<Case> cases = {
      {{}, true},
      {{0}, true},
      {{1}, true},
      {{-1}, false},
      {{std::numeric_limits<int64_t>::min()}, false},
      {{kMax}, false},
      {{kTop}, true},
      {{kTop + 1}, false},
      {{kTop - 1}, true},
      {{kTop, 1}, true},
      {{kTop, 1 << 20}, true},
      {{kTop, 1 << 21}, false},
      {{kTop, (1 << 21) - 1}, true},
      {{kTop, kTop}, false},
      {{kTop, kTop, 0}, true},
      {{0, kTop, kTop}, true},
      {{1, 1, 1, 1, 1, 1, 1, 1}, true},
      {{1, 1, 1, 1, 1, 1, 1, 1, 1}, false},
      {{2, 2, 2, 2, 2, 2, 2, 2}, true},
      {{kTop, kTop, kTop, kTop, kTop, kTop, kTop, kTop}, false},
      {{int64_t{1} << 32, int64_t{1} << 32}, false},
      {{int64_t{1} << 32, int64_t{1} << 29}, false},
      {{int64_t{1} << 32, (int64_t{1} << 29) - 1}, true},
      {{3037000500, 3037000500}, false},
      {{-1, -1}, false},
      {{-2, 0}, false},
      {{1, -4, 4}, false},
  };
  for (const Case& c : cases) {
    const LogicalTensor tensor{"t", DType::kFp32, c.shape};
    if (c.good)
      EXPECT_NO_THROW(check_tensor(tensor, "test"))
          << ::testing::PrintToString(c.shape);
    else
      EXPECT_THROW(check_tensor(tensor, "test"), UsageError)
          << ::testing::PrintToString(c.shape);
  }
  // Boxes in a tensor of 10: first and count.
  const LogicalTensor ten{"t", DType::kFp32, {10}};
  const std::vector<std::array<int64_t, 2>> bad = {
      {-1, 1},    {0, 0},    {0, -1},     {0, 11},   {10, 1},
      {10, 0},    {9, 2},    {kMax, 1},   {1, kMax}, {kMax, kMax},
      {-kMax, 1}, {-10, 20}, {kTop, kTop}};
  for (const auto& [first, count] : bad)
    EXPECT_THROW(check_box(ten, {{first}, {count}}, "test"), UsageError)
        << first << " " << count;
  EXPECT_THROW(check_box(ten, {{0, 0}, {1, 1}}, "test"), UsageError);
  EXPECT_THROW(check_box(ten, {{0}, {}}, "test"), UsageError);
  EXPECT_NO_THROW(check_box(ten, {{9}, {1}}, "test"));
}

TEST(Boxes, HostileNamesAreRefused) {
  const std::vector<std::string> names = {"",
                                          std::string(257, 'a'),
                                          "a\nb",
                                          "a\x1B[31m",
                                          "a#2",
                                          "__metadata__",
                                          std::string("a\0b", 3),
                                          "a\x7F",
                                          "\xFF\xFE",
                                          "a\t",
                                          "\xE2\x80\xAE"
                                          "evil",
                                          "\xC0\x80",
                                          "a\r"};
  for (const std::string& name : names)
    EXPECT_THROW(check_tensor({name, DType::kFp32, {1}}, "test"), UsageError)
        << ::testing::PrintToString(name);
  // Names are data, so these are not treated as paths.
  for (const char* name : {"model/a.b", "../../etc/passwd", "a b", "ü"})
    EXPECT_NO_THROW(check_tensor({name, DType::kFp32, {1}}, "test"));
}

TEST(Boxes, SharedRunsCopyWhatIsShared) {
  Draws draw(2);
  for (int i = 0; i < 3000; ++i) {
    std::vector<int64_t> shape = random_shape(draw);
    for (int64_t& dim : shape) dim = std::max<int64_t>(dim, 1);
    const auto random_box = [&] {
      Box box;
      for (const int64_t dim : shape) {
        box.first.push_back(draw.from_to(0, dim - 1));
        box.count.push_back(draw.from_to(1, dim - box.first.back()));
      }
      return box;
    };
    const Box a = random_box();
    const Box b = random_box();
    // Each element is its index in the whole tensor.
    const auto numbers = [&](const Box& box, bool filled) {
      std::vector<int32_t> out;
      for_each_element(shape, [&](const std::vector<int64_t>& at, int64_t n) {
        if (holds(box, at))
          out.push_back(filled ? static_cast<int32_t>(n) : -1);
      });
      return out;
    };
    const std::vector<int32_t> source = numbers(a, true);
    std::vector<int32_t> target = numbers(b, false);
    const bool shares = intersection(a, b).has_value();
    if (shares) {
      const SharedRuns runs(a, b, 4);
      int64_t last = -1;
      for (int64_t r = 0; r < runs.count(); ++r) {
        ASSERT_GT(runs.in_source(r), last);
        last = runs.in_source(r);
        ASSERT_EQ(runs.first_behind(last), r);
        std::memcpy(reinterpret_cast<char*>(target.data()) + runs.in_target(r),
                    reinterpret_cast<const char*>(source.data()) + last,
                    static_cast<size_t>(runs.bytes()));
      }
      EXPECT_EQ(runs.first_behind(last + runs.bytes()), runs.count());
    }
    std::vector<int32_t> expected;
    bool any = false;
    for_each_element(shape, [&](const std::vector<int64_t>& at, int64_t n) {
      if (!holds(b, at)) return;
      any = any || holds(a, at);
      expected.push_back(holds(a, at) ? static_cast<int32_t>(n) : -1);
    });
    ASSERT_EQ(target, expected) << "case " << i;
    ASSERT_EQ(shares, any);
  }
}

}  // namespace
}  // namespace canzona::checkpoint::boxes_test
