RENDERED=()
def render(*a): return []
