// The kernel for machines with AVX2 and FMA; setup.py has the flags.
#define KERNEL_MODULE _avx2
#define KERNEL_LANES 4
#include "../binding.hpp"
