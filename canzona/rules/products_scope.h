// How an engine multiplies while a rule is at work; plainly before and after,
// also if the work ends by an error.
//
//   const ProductsScope fast(engine, Products::kBf16x3);
//   { const ProductsScope plain(engine, Products::kPlain, Products::kBf16x3); }
#pragma once

#include "canzona/linalg/engine.h"

namespace canzona {

class ProductsScope {
 public:
  ProductsScope(Engine& engine, Products during,
                Products after = Products::kPlain)
      : engine_(engine), after_(after) {
    engine_.set_products(during);
  }
  ~ProductsScope() { engine_.set_products(after_); }
  ProductsScope(const ProductsScope&) = delete;
  ProductsScope& operator=(const ProductsScope&) = delete;

 private:
  Engine& engine_;
  Products after_;
};

inline Products products_of(bool splits) {
  return splits ? Products::kBf16x3 : Products::kPlain;
}
// For what needs all of fp32.
inline Products exact_products_of(bool splits) {
  return splits ? Products::kBf16x6 : Products::kPlain;
}

}  // namespace canzona
