#include "canzona/base/error.h"
#include "canzona/linalg/cuda/tile_product_task.h"
namespace canzona {
void run_tile_task_portable(const TileTask&, cudaStream_t) {
  throw InternalError("portable");
}
}  // namespace canzona
