#include "canzona/sim/rank_threads.h"

#include <gtest/gtest.h>

#include "canzona/sim/test_work.h"

namespace canzona::sim::issuer_test {
namespace {

struct Bench {
  explicit Bench(double copy_rate)
      : first(events, ports, is_computing, copy_rate),
        second(events, ports, is_computing, copy_rate) {}
  void run() {
    while (events.run_next()) {
    }
  }

  EventQueue events;
  Ports ports{slow_links()};
  bool is_computing = false;
  Issuer first, second;
};

// Returns when it ends if it runs alone.
double end_of(const Transfer& transfer, double copy_rate) {
  Bench bench(copy_rate);
  double end = -1;
  bench.first.start(transfer, [&] { end = bench.events.now(); });
  EXPECT_TRUE(bench.first.is_busy());
  bench.run();
  EXPECT_FALSE(bench.first.is_busy());
  return end;
}

TEST(Issuer, AloneTakesAsLongAsTheFormulaSays) {
  Random random(1);
  for (int trial = 0; trial < 200; ++trial) {
    const Transfer transfer = random_transfer(random, 50);
    for (double rate : {0.0, 1.0, 7.0})
      EXPECT_NEAR(end_of(transfer, rate),
                  seconds_alone(transfer, slow_links(), rate), 1e-9);
  }
}

// A gather, booked as a whole, passes between the segments of a sum.
TEST(Issuer, SegmentsLetOthersPass) {
  Bench bench(0);
  Transfer sum = intra_transfer(10);
  sum.parts = 5;
  double end_of_sum = -1, end_of_gather = -1;
  bench.first.start(sum, [&] { end_of_sum = bench.events.now(); });
  bench.events.at(3, [&] {
    bench.second.start(intra_transfer(6),
                       [&] { end_of_gather = bench.events.now(); });
  });
  bench.run();
  EXPECT_EQ(end_of_gather, 4 + 6);
  EXPECT_EQ(end_of_sum, 16);
}

TEST(Issuer, WhatIsBookedWholeLetsNobodyPass) {
  Bench bench(0);
  double end_of_second = -1;
  bench.first.start(intra_transfer(10), [] {});
  bench.second.start(intra_transfer(6),
                     [&] { end_of_second = bench.events.now(); });
  bench.run();
  EXPECT_EQ(end_of_second, 16);
}

TEST(Issuer, EachPartIsAMeeting) {
  EventQueue events;
  Ports ports{slow_links()};
  bool is_computing = true;
  Issuer issuer(events, ports, is_computing, 0,
                {.idle = 1, .beside_compute = 5});
  Transfer sum = intra_transfer(10);
  sum.parts = 2;
  double end = -1;
  events.at(8, [&] { is_computing = false; });
  issuer.start(sum, [&] { end = events.now(); });
  while (events.run_next()) {
  }
  EXPECT_EQ(end, 5 + 5 + 5 + 1);
}

// Copies during transfer are free as long as the transfer takes longer.
TEST(Issuer, TheWireHidesCopiesOfWhatIsOnIt) {
  Bench bench(2);
  double end = -1;
  bench.first.start(intra_transfer(10), [&] { end = bench.events.now(); });
  bench.run();
  EXPECT_EQ(end, 10);
}

}  // namespace
}  // namespace canzona::sim::issuer_test
