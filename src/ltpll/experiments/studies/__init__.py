"""Studies: small experiments that run on any machine, behind `ltpll demo` and `ltpll toy`."""
