// Prints the GPU on which the tests will run; exits 1 if there is none.
#include <iostream>

#include "canzona/linalg/cuda_device.h"

int main() {
  std::string why_not;
  const auto gpu = canzona::linalg::find_cuda_device(&why_not);
  if (!gpu) {
    std::cerr << "the GPU tests did not run: " << why_not << '\n';
    return 1;
  }
  std::cout << gpu->name << ", driver " << gpu->driver << '\n';
}
