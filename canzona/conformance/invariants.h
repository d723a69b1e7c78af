// How good a decomposition is, whichever of the many right ones it is. Square
// matrices of n x n numbers, row by row; plain loops in fp64.
#pragma once

#include <cstdint>
#include <vector>

namespace canzona {

using Square = std::vector<double>;

// max|QᵀQ - I|
double orthogonality_error(const Square& q, int64_t n);
// |QᵀFQ less its diagonal| / |F|, Frobenius; 0 if F is zero.
double off_diagonal_share(const Square& q, const Square& f, int64_t n);
// The diagonal of QᵀFQ.
std::vector<double> eigenvalue_estimates(const Square& q, const Square& f,
                                         int64_t n);
// max|A^q·X^p - I|, for an X that should be A to the minus q/p.
double root_residual(const Square& a, const Square& x, int64_t n, int64_t p,
                     int64_t q);

}  // namespace canzona
