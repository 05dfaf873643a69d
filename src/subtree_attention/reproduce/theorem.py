GRAPHS=()
def measure(*a,**k): return {}
