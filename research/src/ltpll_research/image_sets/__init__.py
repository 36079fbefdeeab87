"""The benchmark image sets CIFAR-10, CIFAR-100 and PASCAL VOC 2007, from archives to arrays."""
