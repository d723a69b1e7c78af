#include "canzona/trials/machine_limits.h"

#include "canzona/measure/shared_machine.h"

namespace canzona {

MachineLimits measure_limits(Communicator& world, Engine& engine) {
  const SharedProducts products =
      measure_shared_products(world, engine, DType::kFp32);
  const SharedCopies copies = measure_shared_copies(world);
  MachineLimits limits;
  limits.flops = {kSharedProductsFlops / products.alone,
                  kSharedProductsFlops / products.together};
  limits.copies = {copies.alone, copies.together};
  return limits;
}

}  // namespace canzona
