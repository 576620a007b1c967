// The kernel for machines with AVX-512; setup.py has the flags.
#define KERNEL_MODULE _avx512
#define KERNEL_LANES 8
#include "../binding.hpp"
