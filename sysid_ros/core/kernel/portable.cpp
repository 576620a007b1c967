// The kernel for any machine; setup.py has the flags.
#define KERNEL_MODULE _portable
#define KERNEL_LANES 2
#include "binding.hpp"
